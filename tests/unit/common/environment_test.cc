#include "common/environment.h"

#include <cstdlib>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// A variable for as long as it lives.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    for (const auto& variable : environment_table()) unsetenv(std::string(variable.name).c_str());
  }
};

TEST_F(EnvironmentTest, TheTableIsComplete) {
  std::set<std::string> names;
  for (const auto& variable : environment_table()) {
    EXPECT_EQ(variable.name.substr(0, 6), "NEZHA_");
    EXPECT_FALSE(variable.help.empty()) << variable.name;
    EXPECT_TRUE(names.insert(std::string(variable.name)).second) << variable.name;
    EXPECT_EQ(environment(variable.name), variable.default_value);
  }
  EXPECT_EQ(names.count("NEZHA_LOG"), 1u);
}

TEST_F(EnvironmentTest, AValueThatIsSetReplacesTheDefault) {
  EXPECT_EQ(environment("NEZHA_LOG"), "warning");
  {
    const Setting setting("NEZHA_LOG", "debug");
    EXPECT_EQ(environment("NEZHA_LOG"), "debug");
    EXPECT_TRUE(check_environment().ok());
  }
  const Setting empty("NEZHA_LOG", "");
  EXPECT_EQ(environment("NEZHA_LOG"), "warning");
}

TEST_F(EnvironmentTest, AValueThatMayNotBeIsAnErrorThatNamesThoseThatMay) {
  const Setting setting("NEZHA_LOG", "loud");
  const absl::Status status = check_environment();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("loud"), absl::string_view::npos);
  EXPECT_NE(status.message().find("debug"), absl::string_view::npos);
}

TEST_F(EnvironmentTest, AnUnknownNameIsAnErrorThatNamesTheNearest) {
  EXPECT_TRUE(check_environment().ok());
  const Setting other("NEZHAX", "1");
  EXPECT_TRUE(check_environment().ok());
  const Setting unknown("NEZHA_LOGG", "debug");
  const absl::Status status = check_environment();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("NEZHA_LOGG"), absl::string_view::npos);
  EXPECT_NE(status.message().find("did you mean NEZHA_LOG?"), absl::string_view::npos);
}

}  // namespace
}  // namespace nezha
