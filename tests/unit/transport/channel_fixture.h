// SPDX-License-Identifier: Apache-2.0
// What tests of channels share: both ends of a message, which check what the channel does with
// them, and a clock that tests move.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/interval_set.h"
#include "common/log.h"
#include "gtest/gtest.h"
#include "tests/unit/transport/virtual_clock.h"
#include "transport/channel.h"

namespace nezha::testing {

// Fills memory that the channel no longer owns. Messages never contain this byte.
constexpr std::byte kScribble{0xee};

// The contents of messages: a sequence of random bytes, repeated.
class Pattern {
 public:
  // The bytes of message `name` from `offset` on: at most `length`, and only as many as are
  // contiguous. Bytes from another place or message differ.
  static std::span<const std::byte> at(uint64_t name, uint64_t offset, size_t length) {
    static const std::vector<std::byte> bytes = make();
    const uint64_t phase = (name * 0x9e3779b97f4a7c15u) >> 32;
    const size_t first = (phase + offset) % bytes.size();
    return std::span(bytes).subspan(first, std::min(length, bytes.size() - first));
  }
  static void fill(uint64_t name, std::span<std::byte> memory) {
    for (size_t done = 0; done < memory.size();) {
      const auto part = at(name, done, memory.size() - done);
      std::memcpy(memory.data() + done, part.data(), part.size());
      done += part.size();
    }
  }
  static bool is_at(uint64_t name, uint64_t offset, std::span<const std::byte> memory) {
    for (size_t done = 0; done < memory.size();) {
      const auto part = at(name, offset + done, memory.size() - done);
      if (std::memcmp(memory.data() + done, part.data(), part.size()) != 0) return false;
      done += part.size();
    }
    return true;
  }

 private:
  static std::vector<std::byte> make() {
    constexpr size_t kLength = 65'521;  // a prime, so that no part of a message has this length
    std::mt19937 random(1);             // NOLINT(cert-msc51-cpp): the same bytes in each run
    std::vector<std::byte> bytes(kLength);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random() >> 24);
      if (byte == kScribble) byte = std::byte{0x11};
    }
    return bytes;
  }
};

// A part of a message, as an operation might describe it.
struct Part {
  uint64_t offset = 0;
  size_t length = 0;
};

struct TestSender final : Sender {
  uint64_t name = 0;
  std::vector<std::byte> memory;
  std::vector<Part> to_push;
  IntervalSet released_parts;
  uint64_t released_bytes = 0;
  uint64_t pushed_bytes = 0;
  OutMessage* message = nullptr;  // null: settled, failed or abandoned
  bool settling = false;
  bool is_copied = false;  // the channel copies what is pushed; see Route
  bool is_settled = false;
  bool gone = false;  // abandoned: nothing may be called
  absl::Status failure;

  TestSender(uint64_t its_name, size_t bytes) : name(its_name), memory(bytes) {
    Pattern::fill(name, memory);
  }
  void released(uint64_t offset, size_t length) override {
    EXPECT_FALSE(gone) << "released after abandon";
    EXPECT_FALSE(is_settled) << "released after settled";
    EXPECT_FALSE(is_copied) << "released at once, of which it is not told";
    take_back(offset, length);
  }
  // The sender owns the memory again.
  void take_back(uint64_t offset, size_t length) {
    ASSERT_LE(offset + length, memory.size());
    EXPECT_TRUE(released_parts.add(offset, offset + length)) << "released twice";
    released_bytes += length;
    std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(offset), length, kScribble);
  }
  void settled() override {
    EXPECT_FALSE(gone);
    EXPECT_TRUE(settling);
    EXPECT_FALSE(is_settled) << "settled twice";
    EXPECT_EQ(released_bytes, memory.size()) << "settled with memory that was not released";
    is_settled = true;
    message = nullptr;
    memory = {};
  }
  void failed(const absl::Status& why) override {
    EXPECT_FALSE(gone);
    EXPECT_TRUE(failure.ok()) << "failed twice";
    failure = why;
    message = nullptr;
    memory = {};
  }
  void abandoned() {
    gone = true;
    message = nullptr;
    std::fill(memory.begin(), memory.end(), kScribble);
    memory = {};
  }
};

struct TestReceiver final : Receiver {
  uint64_t name = 0;
  wire::MessageInfo info;
  std::vector<std::byte> memory;
  std::map<uint64_t, size_t> placed;  // not landed yet
  IntervalSet landed_parts;
  uint64_t landed_bytes = 0;
  int landings = 0;
  Inbox::Ticket* ticket = nullptr;
  bool complete = false;
  bool cancelled = false;
  absl::Status failure;

  TestReceiver(uint64_t its_name, const wire::MessageInfo& its_info)
      : name(its_name), info(its_info), memory(its_info.total, std::byte{0xcc}) {}

  bool over() const { return complete || cancelled || !failure.ok(); }
  bool owns(const std::byte* place) const {
    return place >= memory.data() && place < memory.data() + memory.size();
  }
  std::byte* place(uint64_t offset, size_t length) override {
    EXPECT_FALSE(over()) << "place after the end";
    EXPECT_GT(length, 0u);
    EXPECT_LE(offset + length, info.total);
    EXPECT_FALSE(landed_parts.intersects(offset, offset + length)) << "placed after it landed";
    const auto next = placed.lower_bound(offset);
    EXPECT_TRUE(next == placed.end() || next->first >= offset + length) << "placed twice";
    EXPECT_TRUE(next == placed.begin() ||
                std::prev(next)->first + std::prev(next)->second <= offset)
        << "placed twice";
    placed[offset] = length;
    return memory.data() + offset;
  }
  void landed(uint64_t offset, size_t length, Rail) override {
    EXPECT_FALSE(over()) << "landed after the end";
    ++landings;
    if (info.total == 0) {
      EXPECT_EQ(length, 0u);
      EXPECT_EQ(landings, 1);
    } else {
      EXPECT_EQ(placed.count(offset), 1u) << "landed without a place";
      EXPECT_EQ(placed[offset], length);
      placed.erase(offset);
      EXPECT_TRUE(landed_parts.add(offset, offset + length)) << "landed twice";
      EXPECT_TRUE(Pattern::is_at(name, offset, std::span(memory).subspan(offset, length)))
          << "message " << name << " is wrong in segment [" << offset << ", +" << length << ")";
      // By now, a receiver may have used the segment and overwritten it.
      std::fill_n(memory.begin() + static_cast<std::ptrdiff_t>(offset), length, kScribble);
    }
    landed_bytes += length;
    if (landed_bytes == info.total) {
      complete = true;
      ticket = nullptr;
      EXPECT_TRUE(placed.empty()) << "complete with segments that have not landed";
    }
  }
  void failed(const absl::Status& why) override {
    EXPECT_FALSE(over());
    failure = why;
    ticket = nullptr;
    scribble();
  }
  void mismatched(const wire::MessageInfo&) override {
    ADD_FAILURE() << "mismatched";
    failed(absl::FailedPreconditionError("mismatched"));
  }
  void scribble() { std::fill(memory.begin(), memory.end(), kScribble); }
  // Call at the end. Checks that nothing was written to memory that the channel no longer owned.
  void check_untouched() const {
    if (!over()) return;
    const std::vector<std::byte> untouched(memory.size(), kScribble);
    EXPECT_TRUE(memory.empty() || std::memcmp(memory.data(), untouched.data(), memory.size()) == 0)
        << "written after the end of message " << name;
  }
};

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() {
    log().set_level(spdlog::level::err);  // the tests break links on purpose
    auto made = Progress::create();
    EXPECT_TRUE(made.ok());
    progress_ = *std::move(made);
    guard_ = std::make_unique<Progress::Guard>(*progress_);
  }
  ~ChannelTest() override { guard_.reset(); }

  // Runs the timers that are due.
  void run_timers() {
    Waiter never;
    progress_->wait(*guard_, never, now() + 100);
  }

  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Progress::Guard> guard_;  // held throughout, so that no other thread drives
  VirtualClock clock_;
};

}  // namespace nezha::testing
