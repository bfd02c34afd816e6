// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>

#include "common/host.h"
#include "gtest/gtest.h"

namespace nezha {
namespace {

// The exit status of a process that calls `prepare`, to change its stderr, and then logs.
int status_of_one_that_logs(const std::function<void()>& prepare) {
  const pid_t child = fork();
  if (child == 0) {
    prepare();
    log().error("nobody reads this");
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

void take_as_stderr(int end, int other_end) {
  dup2(end, STDERR_FILENO);
  close(end);
  close(other_end);
}

void break_stderr() {
  int ends[2];
  if (pipe(ends) == 0) take_as_stderr(ends[1], ends[0]);
}

TEST(Log, EndsNoProgramWhoseStderrIsBroken) {
  EXPECT_EQ(status_of_one_that_logs(break_stderr), 0);
  EXPECT_EQ(status_of_one_that_logs([] {
              int ends[2];
              if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0) take_as_stderr(ends[1], ends[0]);
            }),
            0);
  EXPECT_EQ(status_of_one_that_logs([] { close(STDERR_FILENO); }), 0);
}

TEST(Log, LeavesSigpipeToTheProgram) {
  // The program's own writes still raise SIGPIPE.
  const int status = status_of_one_that_logs([] {
    break_stderr();
    log().error("nobody reads this");
    std::fputs("nor this\n", stderr);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  // A signal that the program blocks stays pending.
  EXPECT_EQ(status_of_one_that_logs([] {
              break_stderr();
              sigset_t set;
              sigemptyset(&set);
              sigaddset(&set, SIGPIPE);
              pthread_sigmask(SIG_BLOCK, &set, nullptr);
              raise(SIGPIPE);
              log().error("nobody reads this");
              const timespec at_once{};
              if (sigtimedwait(&set, nullptr, &at_once) != SIGPIPE) _exit(1);
            }),
            0);
}

// What a child process logs on standard error.
std::string logged(const std::function<void()>& say) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    say();
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t got = 0; (got = read(ends[0], bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(got));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}

std::string without_times(const std::string& lines) {
  return std::regex_replace(
      lines, std::regex("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d\\.\\d{3} nezha"), "TIME");
}

TEST(Log, SaysWhenAndWho) {
  const std::string process = "host " + host_name() + ", pid \\d+";
  const std::string lines = without_times(logged([] {
    log().warn("nobody yet");
    RankLog rank = log_of_rank(3, 8);
    rank->warn("it is");
    log().warn("the one rank's");
    log_of_part("rank 0 of 2 (split from rank 3 of 8)")->error("a part");
    RankLog again = log_of_rank(3, 8);
    log().warn("of twice the same");
    {
      const RankLog other = log_of_rank(4, 8);
      log().warn("of two");
    }
    log().warn("of one again");
    again.reset();
    rank.reset();
    log().warn("of two that were");
    (void)log_of_rank(5, 8);
    log().warn("of one that was");
  }));
  const std::string one = "rank 3 of 8, " + process;
  EXPECT_TRUE(std::regex_match(
      lines, std::regex("TIME warning \\[" + process + "\\]: nobody yet\n" +          //
                        "TIME warning \\[" + one + "\\]: it is\n" +                   //
                        "TIME warning \\[" + one + "\\]: the one rank's\n" +          //
                        "TIME error \\[rank 0 of 2 \\(split from rank 3 of 8\\), " +  //
                        process + "\\]: a part\n" +                                   //
                        "TIME warning \\[" + one + "\\]: of twice the same\n" +       //
                        "TIME warning \\[" + process + "\\]: of two\n" +              //
                        "TIME warning \\[" + one + "\\]: of one again\n" +            //
                        "TIME warning \\[" + process + "\\]: of two that were\n" +    //
                        "TIME warning \\[rank 5 of 8, " + process + "\\]: of one that was\n")))
      << lines;
}

class LogToFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string contents(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string folder_ = [] {
    std::string name = testing::TempDir() + "logXXXXXX";
    return std::string(mkdtemp(name.data()));
  }();
};

TEST_F(LogToFile, NamesTheFirstRankOfTheProcess) {
  EXPECT_EQ(logged([this] {
              setenv("NEZHA_LOG_FILE", (folder_ + "/%r.log").c_str(), 1);
              const RankLog first = log_of_rank(3, 8);
              const RankLog second = log_of_rank(5, 8);
              second->warn("a word");
              log().warn("another");
            }),
            "");
  EXPECT_NE(contents("3.log").find(": a word\n"), std::string::npos);
  EXPECT_NE(contents("3.log").find(": another\n"), std::string::npos);
}

TEST_F(LogToFile, NamesTheLaunchersRankBeforeThereIsAContext) {
  EXPECT_EQ(logged([this] {
              setenv("NEZHA_LOG_FILE", (folder_ + "/%r.log").c_str(), 1);
              setenv("OMPI_COMM_WORLD_RANK", "6", 1);
              setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
              log().warn("a word");
            }),
            "");
  EXPECT_NE(contents("6.log").find(": a word\n"), std::string::npos);
}

TEST_F(LogToFile, GoesToStandardErrorWhereItCannotBeWritten) {
  const std::string lines = logged([this] {
    setenv("NEZHA_LOG_FILE", (folder_ + "/none/log").c_str(), 1);
    log().warn("a word");
    log().warn("another");
  });
  EXPECT_NE(lines.find("none/log cannot be opened: No such file or directory"), std::string::npos);
  EXPECT_EQ(lines.find("none/log"), lines.rfind("none/log")) << "told once: " << lines;
  EXPECT_NE(lines.find(": a word\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find(": another\n"), std::string::npos) << lines;
}

TEST_F(LogToFile, EndsNoProgramWhoseFileMayNotGrow) {
  const std::string lines = logged([this] {
    setenv("NEZHA_LOG_FILE", (folder_ + "/log").c_str(), 1);
    const rlimit nothing{};
    setrlimit(RLIMIT_FSIZE, &nothing);
    log().warn("a word");
    log().warn("another");
  });
  EXPECT_NE(lines.find("/log cannot be written: File too large"), std::string::npos) << lines;
  EXPECT_NE(lines.find(": another\n"), std::string::npos) << lines;
}

TEST_F(LogToFile, AChildHasItsOwnFile) {
  EXPECT_EQ(logged([this] {
              setenv("NEZHA_LOG_FILE", (folder_ + "/%p").c_str(), 1);
              log().warn("of the parent");
              const pid_t child = fork();
              if (child == 0) {
                log().warn("of the child");
                _exit(0);
              }
              waitpid(child, nullptr, 0);
            }),
            "");
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string text = contents(entry.path().filename());
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    EXPECT_NE(text.find("pid " + entry.path().filename().string() + "]: of the "),
              std::string::npos)
        << text;
    ++files;
  }
  EXPECT_EQ(files, 2);
}

}  // namespace
}  // namespace nezha
