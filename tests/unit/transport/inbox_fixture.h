// SPDX-License-Identifier: Apache-2.0
// What tests of the inbox share: its owner, receivers, and arriving segments.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/inbox.h"

namespace nezha::testing {

struct FakeOwner final : InboxOwner {
  std::vector<uint64_t> grants;
  std::vector<std::pair<Rail, size_t>> dropped;  // and the index among the segments in flight
  void send_grant(uint64_t number, Rail /*rail*/) override { grants.push_back(number); }
  bool drop_incoming(Rail rail, size_t nth) override {
    dropped.emplace_back(rail, nth);
    return true;
  }
};

struct FakeReceiver final : Receiver {
  std::string memory;
  std::vector<std::pair<uint64_t, size_t>> placed, landings;
  std::vector<absl::Status> failures;
  std::vector<wire::MessageInfo> mismatches;
  int matches = 0;
  bool takes_less = false;  // where it is asked
  std::function<void()> on_matched = [] {};
  std::function<void()> on_landed = [] {};
  std::function<void()> on_failed = [] {};

  explicit FakeReceiver(size_t bytes) : memory(bytes, '.') {}
  bool accepts(const wire::MessageInfo& theirs) override {
    ++matches;
    on_matched();
    return theirs.total == memory.size() || (takes_less && theirs.total < memory.size());
  }
  std::byte* place(uint64_t offset, size_t length) override {
    placed.emplace_back(offset, length);
    return reinterpret_cast<std::byte*>(memory.data()) + offset;
  }
  void landed(uint64_t offset, size_t length, Rail) override {
    landings.emplace_back(offset, length);
    on_landed();
  }
  void failed(const absl::Status& why) override {
    failures.push_back(why);
    on_failed();
  }
  void mismatched(const wire::MessageInfo& theirs) override { mismatches.push_back(theirs); }
};

class InboxTest : public ::testing::Test {
 protected:
  // What a segment of a few bytes uses of the credit.
  static constexpr uint64_t kCharge = wire::charge(1);

  static wire::MessageInfo info(uint64_t tag, uint64_t total) {
    wire::MessageInfo result;
    result.context = 5;
    result.tag = tag;
    result.signature = 9;
    result.total = total;
    return result;
  }

  // Delivers a segment's header; returns where its payload goes.
  absl::StatusOr<std::byte*> arrive(Rail rail, const wire::MessageInfo& message, uint64_t number,
                                    uint64_t offset, size_t length,
                                    uint8_t flags = wire::kFlagCharged, uint32_t previous = 0,
                                    uint32_t attempt = 0) {
    wire::FrameHeader frame;
    frame.type = wire::FrameType::kData;
    frame.flags = flags;
    frame.length = static_cast<uint32_t>(length);
    wire::DataHeader data;
    data.info = message;
    data.number = number;
    data.offset = offset;
    data.previous = previous;
    data.attempt = attempt;
    return inbox_.arrive(rail, frame, data);
  }
  // Delivers a whole segment.
  absl::Status deliver(const wire::MessageInfo& message, uint64_t number, uint64_t offset,
                       const std::string& payload, uint8_t flags = wire::kFlagCharged,
                       uint32_t previous = 0, Rail rail = 0, uint32_t attempt = 0) {
    const auto place =
        arrive(rail, message, number, offset, payload.size(), flags, previous, attempt);
    if (!place.ok()) return place.status();
    if (*place != nullptr) std::memcpy(*place, payload.data(), payload.size());
    inbox_.landed(rail);
    return absl::OkStatus();
  }
  uint64_t consumed() const { return inbox_.credit() - Inbox::kCredit; }

  FakeOwner owner_;
  BufferPool pool_;
  Inbox inbox_{owner_, pool_};
};

}  // namespace nezha::testing
