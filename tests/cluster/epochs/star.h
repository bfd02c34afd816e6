// SPDX-License-Identifier: Apache-2.0
// An engine that can be lost, for tests: ranks send blocks of float32 to a process, the star, which
// adds them up in the order in which they come and sends the sums to all. Over TCP, without any
// care for speed. When one rank's connection ends, the star ends all of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context/context_impl.h"

namespace nezha::star {

// The process. Serves until it is killed.
int serve(const std::string& address, uint16_t port, int ranks);

enum class Kind : uint32_t { kHello = 1, kReady, kBeat, kBlock, kHas, kSettled };

struct Frame {
  Kind kind = Kind::kBeat;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
  uint64_t offset = 0;  // of the block, bytes
  uint32_t length = 0;  // bytes that follow
  uint32_t rank = 0;
};

class StarTask;

// A rank's side. Blocks of kBlock bytes go out no more than kWindow ahead of the results, so that
// others may lack the last kWindow of what a rank has.
class StarEngine final : public Engine {
 public:
  static constexpr size_t kBlock = 32 << 10;
  static constexpr size_t kWindow = 4;

  StarEngine(std::string address, uint16_t port, int rank);
  ~StarEngine() override;

  // After the context has joined, and before it is destroyed. `progress` is the context's.
  void start(ContextImpl& context, Progress& progress);
  void stop();
  uint64_t blocks() const { return blocks_; }  // whose sums came
  uint64_t losses() const { return losses_; }

  // Engine
  std::vector<int> peers(const Group&, const Operation&, const EnginePlan&) const override {
    return {};
  }
  absl::StatusOr<std::unique_ptr<Task>> start(const Group& group, const Slice& slice,
                                              const EnginePlan& plan, TaskOwner& owner) override;
  std::vector<Retained> take_retained() override;

 private:
  friend class StarTask;
  using Key = std::pair<uint32_t, uint64_t>;  // tag, ordinal

  void run();
  void read_all();
  void write_all(int fd);
  void on_frame(const Frame& frame, const std::byte* payload);
  void send(const Frame& frame, const std::byte* payload = nullptr);
  void lose();
  void close_connection();

  std::string address_;
  uint16_t port_;
  uint32_t rank_;
  ContextImpl* context_ = nullptr;
  Progress* progress_ = nullptr;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> blocks_ = 0;
  std::atomic<uint64_t> losses_ = 0;

  std::mutex mutex_;  // of the connection and what is to be sent
  std::condition_variable wake_;
  int fd_ = -1;
  std::deque<std::string> outgoing_;

  // Under Progress's lock:
  bool is_ready_ = false;
  std::map<Key, StarTask*> tasks_;
  std::map<Key, std::vector<Retained>> retained_;
};

}  // namespace nezha::star
