// SPDX-License-Identifier: Apache-2.0
#include "common/descriptor.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// Returns whether `test` is true in a process whose standard descriptors are closed.
bool holds_without_standard_descriptors(const std::function<bool()>& test) {
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 0; fd <= 2; ++fd) close(fd);
    _exit(test() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

bool has_descriptor(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptor, IsNoneOfTheStandardOnes) {
  EXPECT_TRUE(holds_without_standard_descriptors([] {
    const int got = above_standard(open("/dev/null", O_RDONLY | O_CLOEXEC));
    const bool closes_on_exec = (fcntl(got, F_GETFD) & FD_CLOEXEC) != 0;
    return got > 2 && closes_on_exec && !has_descriptor(0) && !has_descriptor(1) &&
           !has_descriptor(2);
  }));
}

TEST(Descriptor, KeepsANumberAboveTheStandardDescriptors) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GT(fd, 2);
  EXPECT_EQ(above_standard(fd), fd);
  EXPECT_TRUE(has_descriptor(fd));
  close(fd);
  errno = EMFILE;
  EXPECT_EQ(above_standard(-1), -1);
  EXPECT_EQ(errno, EMFILE);
}

TEST(ReadFile, ReadsAllOrAsMuchAsIsAskedFor) {
  const std::string path = testing::TempDir() + "/nezha-read-file";
  const std::string text(10'000, 'x');
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(std::fwrite(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  EXPECT_EQ(read_file(path), text);
  EXPECT_EQ(read_file(path, 5'000), text.substr(0, 5'000));
  EXPECT_TRUE(holds_without_standard_descriptors([&] { return read_file(path) == text; }));
  std::remove(path.c_str());
  errno = 0;
  EXPECT_EQ(read_file(path), std::nullopt);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace nezha
