// SPDX-License-Identifier: Apache-2.0
// Arbitrary messages from ranks, in any order, to a coordinator with either policy: the ranks must
// accept everything that it sends.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "control/coordinator.h"
#include "control/model_policy.h"
#include "control/paper_policy.h"

namespace nezha {
namespace {

constexpr int kRanks = 2;

class Run {
 public:
  explicit Run(FuzzedDataProvider& input)
      : input_(input),
        lanes_(input.ConsumeIntegralInRange(1, 4)),
        coordinator_(kRanks, balancer(), [this](const control_message::Message& message) {
          if (!control_message::decode(control_message::encode(message), lanes_).ok()) std::abort();
          const auto* prepare = std::get_if<control_message::Prepare>(&message);
          if (prepare != nullptr) steps_.push_back(prepare->plan);
          const auto* commit = std::get_if<control_message::Commit>(&message);
          for (size_t i = 0; commit != nullptr && i < commit->changes.size(); ++i) {
            number_[commit->changes[i].size_class] = commit->changes[i].number;
          }
        }) {}

  void step() {
    switch (input_.ConsumeIntegralInRange(0, 7)) {
      case 0:
        return coordinator_.saw(uint64_t{1} << input_.ConsumeIntegralInRange(0, 60));
      case 1:
        return say(rank(), control_message::Lanes{input_.ConsumeIntegral<LaneSet>()});
      case 2:
        return say(rank(), control_message::Lost{input_.ConsumeIntegralInRange(0, lanes_)});
      case 3:
        return say(rank(), control_message::Report{input_.ConsumeIntegral<uint8_t>(), {}});
      case 4:
        return say(rank(), control_message::Frozen{input_.ConsumeIntegral<uint8_t>(), {}});
      case 5:
        return report();
      default:
        return run_window();
    }
  }

 private:
  LoadBalancer balancer() {
    std::vector<std::string> names;
    for (int lane = 0; lane < lanes_; ++lane)
      names.push_back(std::string(1, static_cast<char>('a' + lane)));
    const bool has_stripes = lanes_ > 1 && input_.ConsumeBool();
    const LaneSet alone = has_stripes ? lane_bit(lanes_ - 1) : 0;
    if (!has_stripes && input_.ConsumeBool()) {
      return {std::move(names), std::make_unique<PaperPolicy>(lanes_)};
    }
    return {std::move(names),
            std::make_unique<ModelPolicy>(lanes_, alone, nullptr, [has_stripes](SizeClass) {
              return has_stripes ? std::optional(Algorithm::kRecursiveDoubling) : std::nullopt;
            })};
  }

  int rank() { return input_.ConsumeIntegralInRange(0, kRanks - 1); }
  Nanos time() {
    if (input_.ConsumeIntegralInRange(0, 7) == 0) return input_.ConsumeIntegral<int64_t>();
    return input_.ConsumeIntegralInRange<Nanos>(0, kSecond);
  }

  // Passes on a rank's message as its receiver would decode it.
  void say(int rank, const control_message::Message& message) {
    const auto read = control_message::decode(control_message::encode(message), lanes_);
    if (!read.ok()) return;
    if (const auto* lanes = std::get_if<control_message::Lanes>(&*read)) {
      (void)coordinator_.on_lanes(rank, lanes->live);
    } else if (const auto* lost = std::get_if<control_message::Lost>(&*read)) {
      (void)coordinator_.on_lost(lost->lane);
    } else if (const auto* report = std::get_if<control_message::Report>(&*read)) {
      (void)coordinator_.on_report(rank, *report);
    } else if (const auto* frozen = std::get_if<control_message::Frozen>(&*read)) {
      (void)coordinator_.on_frozen(rank, *frozen);
    } else if (const auto* readings = std::get_if<control_message::Readings>(&*read)) {
      (void)coordinator_.on_readings(rank, readings->readings);
    }
  }

  // Reports as ranks do that follow the protocol.
  void report() {
    while (!steps_.empty()) {
      const uint32_t plan = steps_.front();
      steps_.pop_front();
      for (int rank = 0; rank < kRanks; ++rank) say(rank, control_message::Report{plan, {}});
    }
  }

  // A window of operations of one class, mostly with its present allocation; all have the same
  // times.
  void run_window() {
    Reading reading;
    reading.bytes = input_.ConsumeIntegralInRange<uint64_t>(0, uint64_t{1} << 24);
    const auto number = number_.find(size_class_of(reading.bytes));
    reading.allocation = number == number_.end() ? 1 : number->second;
    if (input_.ConsumeIntegralInRange(0, 7) == 0)
      reading.allocation = input_.ConsumeIntegral<uint8_t>();
    for (int lane = 0; lane < lanes_; ++lane) reading.lanes.push_back(time());
    reading.idle = time();
    const int operations = input_.ConsumeIntegralInRange(1, Timer::kOperations);
    for (int i = 0; i < operations; ++i) {
      reading.operation = {1, ++ordinal_};
      for (int rank = 0; rank < kRanks; ++rank) say(rank, control_message::Readings{{reading}});
    }
  }

  FuzzedDataProvider& input_;
  int lanes_;
  std::deque<uint32_t> steps_;            // steps that wait for reports
  std::map<SizeClass, uint32_t> number_;  // the allocations' numbers
  uint64_t ordinal_ = 0;
  Coordinator coordinator_;
};

}  // namespace
}  // namespace nezha

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  nezha::Run run(input);
  while (input.remaining_bytes() > 0) run.step();
  return 0;
}
