// SPDX-License-Identifier: Apache-2.0
// A plain socket that connects to an endpoint and sends what the test chooses.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "gtest/gtest.h"
#include "transport/wire.h"

namespace nezha::testing {

class Stranger {
 public:
  explicit Stranger(const std::string& address) : Stranger(socket(AF_INET, SOCK_STREAM, 0)) {
    auto to = net::Address::parse(address);
    EXPECT_TRUE(to.ok());
    EXPECT_EQ(::connect(fd_, to->sockaddr_ptr(), to->length()), 0);
  }
  explicit Stranger(int fd) : fd_(fd) {  // takes ownership
    timeval limit{.tv_sec = 30, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Stranger() { close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void write(const void* data, size_t size) { ::send(fd_, data, size, MSG_NOSIGNAL); }
  template <size_t N>
  void write(const std::array<std::byte, N>& bytes) {
    write(bytes.data(), N);
  }
  // Reads `size` bytes, or fewer if the other side closes.
  std::string read(size_t size) {
    std::string text(size, '\0');
    size_t done = 0;
    while (done < size) {
      const ssize_t got = recv(fd_, text.data() + done, size - done, 0);
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    text.resize(done);
    return text;
  }
  bool is_closed() {
    errno = 0;
    return read(1).empty() && errno != EAGAIN;
  }
  absl::StatusOr<wire::Welcome> welcome() {
    const std::string text = read(wire::kWelcomeSize);
    wire::WelcomeBytes bytes{};
    if (text.size() != bytes.size()) return absl::AbortedError("closed");
    std::memcpy(bytes.data(), text.data(), bytes.size());
    return wire::decode_welcome(bytes);
  }

 private:
  int fd_;
};

}  // namespace nezha::testing
