// SPDX-License-Identifier: Apache-2.0
// Ranks of a Gloo context below Gloo: members, and a peer whose part the test plays.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "context/rails.h"
#include "gtest/gtest.h"
#include "interop/gloo/completions.h"
#include "interop/gloo/member.h"
#include "interop/gloo/peer.h"
#include "transport/endpoint.h"
#include "transport/message_stream.h"

namespace nezha::interop {

// One of two ranks, with what it waits for.
struct Party {
  explicit Party(int its_rank,
                 const std::vector<std::string>& rails = {"tcp:lo?rail=a", "tcp:lo?rail=b"})
      : rank(its_rank),
        member(its_rank, 2, rails),
        sends(member.completions("send")),
        receives(member.completions("recv")) {}
  ~Party() {
    member.give_back(std::move(sends));
    member.give_back(std::move(receives));
  }
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  static std::byte* bytes_of(std::string& word) {
    return reinterpret_cast<std::byte*>(word.data());
  }
  // Tells this rank of the other one.
  void connect(Party& other) { member.connect(other.rank, other.member.address().bytes()); }
  bool is_connected() { return member.is_connected(1 - rank); }
  // The word stays until the transfer is over.
  void send(uint64_t slot, std::string& word) {
    member.send(*sends, 1 - rank, slot, bytes_of(word), word.size());
  }
  void send_bound(int slot, std::string& word, uint64_t place) {
    member.send_bound(*sends, 1 - rank, slot, bytes_of(word), word.size(), place);
  }
  void receive(const std::vector<int>& ranks, uint64_t slot, std::string& room) {
    member.receive(*receives, ranks, slot, bytes_of(room), room.size());
  }
  void bind(int slot, std::string& room) {
    member.bind(*receives, 1 - rank, slot, bytes_of(room), room.size());
  }
  std::optional<int> wait_sent() { return member.wait(*sends, std::chrono::seconds(20)); }
  std::optional<int> wait_received() { return member.wait(*receives, std::chrono::seconds(20)); }
  // Withdraws what was to be received.
  void give_receives_back() {
    member.give_back(std::exchange(receives, member.completions("recv")));
  }
  // Drives until `is_done`, which is called with the lock. False: it is not after a minute.
  [[nodiscard]] bool until(absl::FunctionRef<bool()> is_done) {
    Progress::Guard guard(member.progress());
    const Nanos deadline = now() + 60 * kSecond;
    while (!is_done()) {
      if (now() > deadline) return false;
      Waiter tick;
      member.progress().wait(guard, tick, now() + kMillisecond);
    }
    return true;
  }

  const int rank;
  Member member;
  std::unique_ptr<Completions> sends, receives;
};

inline void meet(Party& zero, Party& one) {
  zero.connect(one);
  one.connect(zero);
}

// Whether the call throws an error of that kind whose text contains the words.
template <typename Error, typename F>
::testing::AssertionResult throws(const std::string& words, F call) {
  try {
    call();
  } catch (const Error& error) {
    if (absl::StrContains(error.what(), words)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << error.what();
  }
  return ::testing::AssertionFailure() << "nothing is thrown";
}

// A process that says it is rank 1. It sends rank 0 what the test chooses.
struct PlayedPeer final : JobListener, Sender {
  explicit PlayedPeer(const Address& rank0) : endpoint(*Endpoint::create()) {
    EXPECT_TRUE(open_devices(*endpoint, {"tcp:lo?rail=a"}, "").ok());
    Progress::Guard guard(endpoint->progress());
    EXPECT_TRUE(endpoint->join(kGlooJob, this).ok());
    channel = &endpoint->channel(rank0.process());
    channel->set_peer("rank 0", kGlooJob, {{"a", rank0.record().devices.at("a")}});
    const std::vector<std::string> words = absl::StrSplit(rank0.str(), ' ');
    address = absl::StrCat("nezha1 ", endpoint->process().str(), " ", words[2], " a - ",
                           endpoint->device(0)->address());
    address.resize(Address::kMaxByteSize, ' ');
    // The tag after Gloo's last slot is that of the descriptions of rails.
    constexpr uint64_t kTag = std::numeric_limits<uint64_t>::max() - (uint64_t{1} << 32) + 1;
    descriptions = std::make_unique<MessageStream>(
        *channel, kGlooJob.low, kTag,
        MessageStream::Callbacks{.on_message = [](const std::string&) {},
                                 .on_failed = [](const absl::Status&) {}});
  }
  ~PlayedPeer() {
    Progress::Guard guard(endpoint->progress());
    descriptions.reset();
    if (message != nullptr) channel->abandon(*message);
    endpoint->leave(kGlooJob, this);
    endpoint->progress().run_deferred();
  }

  void describe_rails(const std::string& text) {
    Progress::Guard guard(endpoint->progress());
    descriptions->send(text);
    endpoint->progress().run_deferred();
  }
  // The word stays.
  void send(uint64_t slot, std::string& word) {
    Progress::Guard guard(endpoint->progress());
    message = channel->open({.context = kGlooJob.low, .tag = slot, .total = word.size()}, {}, this);
    channel->push(*message, 0, Party::bytes_of(word), word.size());
    endpoint->progress().run_deferred();
  }

  void on_abort(const wire::Abort& /*abort*/) override {}
  void on_roll_call(const wire::RollCall& /*call*/) override {}
  void on_failed(const absl::Status& /*why*/) override {}
  void released(uint64_t /*offset*/, size_t /*length*/) override {}
  void settled() override {}
  void failed(const absl::Status& /*why*/) override { message = nullptr; }

  std::shared_ptr<Endpoint> endpoint;
  Channel* channel = nullptr;
  std::string address;  // for Member::connect
  std::unique_ptr<MessageStream> descriptions;
  OutMessage* message = nullptr;
};

}  // namespace nezha::interop
