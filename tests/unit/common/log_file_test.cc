// SPDX-License-Identifier: Apache-2.0
#include "common/log_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "common/host.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LogFileName, NamesRankHostAndProcess) {
  const std::string pid = std::to_string(getpid());
  EXPECT_EQ(LogFileName::expand("/tmp/n.log", 3), "/tmp/n.log");
  EXPECT_EQ(LogFileName::expand("%r-%h-%p-100%%", 3), "3-" + host_name() + "-" + pid + "-100%");
  EXPECT_EQ(LogFileName::expand("%%r", 3), "%r");
  EXPECT_EQ(LogFileName::expand("log.%r", -1), "log.none");
}

TEST(LogFileName, IsValidIfEveryPlaceholderIsKnown) {
  for (const char* good : {"a", "%r", "%h%p%%", "/var/log/%r.log"}) {
    EXPECT_TRUE(LogFileName::is_valid(good)) << good;
  }
  for (const char* bad : {"", "%", "a%", "%q", "%R", "%%%"}) {
    EXPECT_FALSE(LogFileName::is_valid(bad)) << bad;
  }
}

class LogFileOf : public testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }

  const std::string path_ = testing::TempDir() + "log" + std::to_string(getpid());
};

TEST_F(LogFileOf, IsAppendedTo) {
  for (int run = 0; run < 2; ++run) {
    LogFile file;
    ASSERT_TRUE(file.open(path_).ok());
    EXPECT_TRUE(file.append("one\n").ok());
    EXPECT_TRUE(file.append("two\n").ok());
  }
  EXPECT_EQ(contents(path_), "one\ntwo\none\ntwo\n");
}

TEST_F(LogFileOf, SaysWhyItCannotBeWritten) {
  LogFile file;
  const absl::Status missing = file.open("/no/such/folder/log");
  EXPECT_FALSE(file.is_open());
  for (const char* part :
       {"/no/such/folder/log", "No such file or directory", "standard error", "NEZHA_LOG_FILE"}) {
    EXPECT_NE(missing.message().find(part), absl::string_view::npos) << missing;
  }
  // The program does not block on a pipe that nobody reads.
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(file.open(path_).ok());
}

TEST_F(LogFileOf, IsGivenUpWhenTheDiskIsFull) {
  LogFile file;
  ASSERT_TRUE(file.open("/dev/full").ok());
  const absl::Status status = file.append("a line\n");
  EXPECT_NE(status.message().find("No space left"), absl::string_view::npos) << status;
  EXPECT_FALSE(file.is_open());
}

}  // namespace
}  // namespace nezha
