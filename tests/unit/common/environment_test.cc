// SPDX-License-Identifier: Apache-2.0
#include "common/environment.h"

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/port_range.h"
#include "gtest/gtest.h"
#include "nezha/environment.h"

namespace nezha {
namespace {

using std::chrono::milliseconds;

// Sets a variable during its own lifetime.
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
    EXPECT_EQ(environment_value(variable.name), "");
    if (variable.default_value.empty()) continue;
    EXPECT_TRUE(check_value(variable.name, variable.default_value).ok()) << variable.name;
  }
  EXPECT_EQ(names.count("NEZHA_LOG"), 1u);
}

TEST_F(EnvironmentTest, TheHelpTellsOfEachVariableInLinesThatFitATerminal) {
  const std::string help = environmentHelp();
  for (const auto& variable : environment_table()) {
    EXPECT_TRUE(absl::StrContains(help, absl::StrCat("\n", variable.name, "\n"))) << help;
    for (const absl::string_view choice : variable.choices) {
      EXPECT_TRUE(absl::StrContains(help, choice)) << choice;
    }
  }
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
    EXPECT_FALSE(absl::EndsWith(line, " ")) << line;
  }
  EXPECT_TRUE(absl::StrContains(help, "from 0 to 1000000. Default: 100."));
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
  EXPECT_TRUE(check_environment().ok());
}

TEST_F(EnvironmentTest, AnInvalidNumberIsReplacedByTheDefault) {
  EXPECT_EQ(environment_number("NEZHA_POLL"), 100);
  for (const char* bad : {"-1", "1000001", "ten", "1.5", "10 us", "99999999999999999999"}) {
    const Setting setting("NEZHA_POLL", bad);
    EXPECT_EQ(environment_number("NEZHA_POLL"), 100) << bad;
  }
  const Setting setting("NEZHA_POLL", "0");
  EXPECT_EQ(environment_number("NEZHA_POLL"), 0);
}

TEST_F(EnvironmentTest, ABadValueIsAnErrorThatSaysWhatItMayBe) {
  struct Case {
    const char* variable;
    const char* value;
    const char* may_be;
  };
  for (const Case& bad : {Case{"NEZHA_LOG", "loud", "one of trace, debug"},
                          Case{"NEZHA_LOG_FILE", "/tmp/%q", "%r stands for the rank"},
                          Case{"NEZHA_PLAN", "Stripe", "slice"},
                          Case{"NEZHA_ALGORITHM", "tree", "bcube"},
                          Case{"NEZHA_POLL", "-1", "a whole number from 0 to 1000000"},
                          Case{"NEZHA_TIMEOUT", "30", "500ms"},
                          Case{"NEZHA_TIMEOUT", "0s", "from 1ms"},
                          Case{"NEZHA_TIMEOUT", "-1s", "from 1ms"},
                          Case{"NEZHA_TIMEOUT", "inf", "8760h"},
                          Case{"NEZHA_TIMEOUT", "9000h", "8760h"},
                          Case{"NEZHA_RAILS", "tcp:eth0,", "commas"},
                          Case{"NEZHA_PORTS", "20000", "such as 20000-20100"},
                          Case{"NEZHA_PORTS", "0-5", "from 1"},
                          Case{"NEZHA_PORTS", "9-8", "a range"},
                          Case{"NEZHA_PORTS", "1-65536", "to 65535"},
                          Case{"NEZHA_SHARES", "0,0", "one of them positive"},
                          Case{"NEZHA_SHARES", "1,-1", "0 or more"},
                          Case{"NEZHA_SHARES", "1,,2", "commas"},
                          Case{"NEZHA_SHARES", "nan", "positive"},
                          Case{"NEZHA_SHARES", "1,inf", "positive"}}) {
    const Setting setting(bad.variable, bad.value);
    const absl::Status status = check_environment();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.variable << "=" << bad.value;
    for (const absl::string_view part : {bad.variable, bad.value, bad.may_be}) {
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << part << ": " << status;
    }
  }
}

TEST_F(EnvironmentTest, GoodValuesAreTaken) {
  for (const auto& [variable, value] :
       {std::pair{"NEZHA_PLAN", "slice"}, std::pair{"NEZHA_ALGORITHM", "halving-doubling"},
        std::pair{"NEZHA_POLL", "1000000"}, std::pair{"NEZHA_TIMEOUT", "1ms"},
        std::pair{"NEZHA_TIMEOUT", "8760h"}, std::pair{"NEZHA_RAILS", "tcp:eth0?rail=a,tcp:eth1"},
        std::pair{"NEZHA_RAIL_THREADS", "1"}, std::pair{"NEZHA_PORTS", "1-65535"},
        std::pair{"NEZHA_SHARES", "70,30.5,1e3"}}) {
    const Setting setting(variable, value);
    EXPECT_TRUE(check_environment().ok()) << variable << "=" << value;
    EXPECT_EQ(environment_value(variable), value);
  }
  EXPECT_EQ(*parse_duration("1.5s"), milliseconds(1500));
  EXPECT_EQ(*parse_numbers("70,30.5"), (std::vector<double>{70, 30.5}));
  EXPECT_EQ(*parse_numbers("0,100,-0"), (std::vector<double>{0, 100, 0}));
  EXPECT_EQ(PortRange::parse("20000-20100")->str(), "20000-20100");
  EXPECT_TRUE(PortRange::parse("")->is_any());
  EXPECT_EQ(parse_list("a,b"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse_list("tcp:a?cpus=0-3,8,10-11&rail=x,tcp:b?cpus=4"),
            (std::vector<std::string>{"tcp:a?cpus=0-3,8,10-11&rail=x", "tcp:b?cpus=4"}));
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

TEST_F(EnvironmentTest, AnUnknownNameThatIsNearToNoneIsAnErrorThatNamesAll) {
  for (const char* name : {"NEZHA_FOO", "NEZHA_", "NEZHA_TIME_LIMIT"}) {
    const Setting unknown(name, "1");
    const absl::Status status = check_environment();
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(name, ";"))) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "did you mean")) << status;
    for (const auto& variable : environment_table()) {
      EXPECT_TRUE(absl::StrContains(status.message(), variable.name)) << status;
    }
  }
}

}  // namespace
}  // namespace nezha
