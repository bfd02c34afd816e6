#include "common/log.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// How a process ends that logs, once `prepare` has changed its stderr.
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
  // What a program itself writes still raises the signal that it expects.
  const int status = status_of_one_that_logs([] {
    break_stderr();
    log().error("nobody reads this");
    std::fputs("nor this\n", stderr);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  // A signal that the program holds back stays pending for it.
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

}  // namespace
}  // namespace nezha
