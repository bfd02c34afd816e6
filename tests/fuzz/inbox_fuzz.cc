// SPDX-License-Identifier: Apache-2.0
// Arbitrary segments that decode_data() accepts, on links that come and go in any order, for an
// inbox whose user posts and cancels receives in any order. Every byte must land once, at the place
// that its receiver chose, and only while the receiver wants it.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "transport/inbox.h"

namespace nezha {
namespace {

constexpr Rail kRails = 3;
constexpr size_t kNumbers = 8;   // of messages
constexpr size_t kUnderWay = 4;  // segments on a link at a time, at most
constexpr uint64_t kMostTotal = 300;
constexpr uint64_t kSegment = 100;  // length in bytes of a correct peer's segments

void require(bool holds) {
  if (!holds) std::abort();
}

std::byte payload(uint64_t offset) { return static_cast<std::byte>(offset * 31 + 7); }

wire::MessageInfo info(FuzzedDataProvider& input) {
  wire::MessageInfo result;
  result.context = input.ConsumeIntegralInRange<uint64_t>(1, 2);
  result.tag = input.ConsumeIntegralInRange<uint64_t>(1, 2);
  result.total = input.ConsumeIntegralInRange<uint64_t>(0, kMostTotal);
  return result;
}

// The memory exists only as long as the inbox may use it.
class Judge final : public Receiver {
 public:
  explicit Judge(uint64_t total, uint64_t refused)
      : memory_(new std::byte[total + 1]), has_(total + 1), total_(total), refused_(refused) {}

  Inbox::Ticket* ticket = nullptr;
  bool is_over() const { return memory_ == nullptr; }
  void end() { memory_.reset(); }

  std::byte* place(uint64_t offset, size_t length) override {
    require(!is_over() && offset <= total_ && length <= total_ - offset);
    return offset == refused_ ? nullptr : memory_.get() + offset;
  }
  void landed(uint64_t offset, size_t length, Rail) override {
    require(!is_over() && offset <= total_ && length <= total_ - offset);
    for (uint64_t at = offset; at < offset + length; ++at) {
      require(!has_[at] && memory_[at] == payload(at));
      has_[at] = true;
    }
    landed_ += length;
    if (landed_ == total_) end();
  }
  void failed(const absl::Status& why) override {
    require(!why.ok() && !is_over());
    end();
  }
  void mismatched(const wire::MessageInfo&) override {
    require(!is_over() && landed_ == 0);
    end();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::vector<bool> has_;
  uint64_t total_;
  uint64_t refused_;  // the offset that the receiver refuses as no correct peer's
  uint64_t landed_ = 0;
};

class Run final : InboxOwner {
 public:
  explicit Run(FuzzedDataProvider& input) : input_(input) {
    for (wire::MessageInfo& message : sent_) message = info(input_);
  }
  ~Run() { inbox_.fail(absl::CancelledError("over")); }

  void step() {
    const auto rail = input_.ConsumeIntegralInRange<Rail>(0, kRails - 1);
    switch (input_.ConsumeIntegralInRange(0, 9)) {
      case 0:
        return post();
      case 1:
        return cancel();
      case 2:
        return go(rail);
      case 3:
        return inbox_.grant_again();
      case 4:
        return inbox_.close_context(2);
      case 5:
        return inbox_.fail_context(input_.ConsumeIntegralInRange<uint64_t>(1, 2), why_);
      default:
        return is_next_to_land(rail) ? land(rail) : arrive(rail);
    }
  }
  void check() const { require(inbox_.consumed() >= consumed_); }

 private:
  struct Reading {
    std::byte* memory;
    uint64_t offset;
    uint32_t length;
  };

  void send_grant(uint64_t number, Rail /*rail*/) override { require(number > 0); }
  bool drop_incoming(Rail rail, size_t nth) override {
    require(nth < reading_[rail].size());
    reading_[rail][nth].memory = nullptr;
    return true;
  }

  void post() {
    const bool is_sent = input_.ConsumeIntegralInRange(0, 7) > 0;
    const wire::MessageInfo message =
        is_sent ? sent_[input_.ConsumeIntegralInRange<size_t>(0, kNumbers - 1)] : info(input_);
    const bool refuses = input_.ConsumeIntegralInRange(0, 7) == 0;
    const uint64_t refused = refuses ? input_.ConsumeIntegralInRange(0, 64) : kMostTotal + 1;
    auto& judge = judges_.emplace_back(std::make_unique<Judge>(message.total, refused));
    judge->ticket = inbox_.post(message, judge.get());
  }
  void cancel() {
    if (judges_.empty()) return;
    Judge& judge = *judges_[input_.ConsumeIntegralInRange<size_t>(0, judges_.size() - 1)];
    if (judge.is_over()) return;
    inbox_.cancel(judge.ticket);
    judge.end();
  }
  void go(Rail rail) {
    inbox_.link_gone(rail);
    reading_[rail].clear();
  }

  bool is_next_to_land(Rail rail) {
    const size_t under_way = reading_[rail].size();
    return under_way > 0 && (under_way == kUnderWay || input_.ConsumeIntegralInRange(0, 1) == 0);
  }

  // Mostly sends what a correct peer sends: all segments of a message describe it alike, and their
  // borders match.
  void arrive(Rail rail) {
    const bool is_known = input_.ConsumeIntegralInRange(0, 7) > 0;
    const bool is_cut_well = input_.ConsumeIntegralInRange(0, 7) > 0;
    wire::FrameHeader frame;
    frame.type = wire::FrameType::kData;
    frame.flags = input_.ConsumeIntegralInRange<uint8_t>(0, 15);
    wire::DataHeader data;
    data.number = input_.ConsumeIntegralInRange<uint64_t>(0, kNumbers - 1);
    data.info = is_known ? sent_[data.number] : info(input_);
    data.previous = input_.ConsumeIntegralInRange<uint32_t>(0, 3) / 2;
    data.attempt = input_.ConsumeIntegralInRange<uint32_t>(0, 2);
    if (is_cut_well) {
      data.offset = input_.ConsumeIntegralInRange<uint64_t>(0, 3) * kSegment;
      frame.length = static_cast<uint32_t>(
          std::min(kSegment, data.info.total - std::min(data.info.total, data.offset)));
    } else {
      data.offset = input_.ConsumeIntegralInRange<uint64_t>(0, kMostTotal);
      frame.length = input_.ConsumeIntegralInRange<uint32_t>(0, kMostTotal);
    }
    std::byte bytes[wire::kDataHeaderSize];
    wire::encode(data, bytes);
    const auto decoded = wire::decode_data(bytes, frame.length);
    if (!decoded.ok()) return;
    const auto place = inbox_.arrive(rail, frame, *decoded);
    if (!place.ok()) return go(rail);
    reading_[rail].push_back({*place, data.offset, frame.length});
  }
  void land(Rail rail) {
    const Reading reading = reading_[rail].front();
    for (uint32_t at = 0; reading.memory != nullptr && at < reading.length; ++at) {
      reading.memory[at] = payload(reading.offset + at);
    }
    reading_[rail].pop_front();
    require(inbox_.next_to_land(rail).length == reading.length);
    consumed_ = inbox_.consumed();
    inbox_.landed(rail);
  }

  const absl::Status why_ = absl::CancelledError("another rank failed");
  FuzzedDataProvider& input_;
  BufferPool pool_;
  Inbox inbox_{*this, pool_};
  std::vector<std::unique_ptr<Judge>> judges_;
  std::deque<Reading> reading_[kRails];
  wire::MessageInfo sent_[kNumbers];  // by the number of the message
  uint64_t consumed_ = 0;
};

}  // namespace
}  // namespace nezha

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  nezha::Run run(input);
  while (input.remaining_bytes() > 0) {
    run.step();
    run.check();
  }
  return 0;
}
