// SPDX-License-Identifier: Apache-2.0
// An engine that can be lost, for tests. Ranks send blocks of float32 to a process, the star, over
// TCP. It adds them up in the order of their arrival and sends the sums to all ranks. It is not
// optimised for speed. When the connection of one rank ends, the star ends all of them.
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

// Runs the star. Serves until the process is killed.
int serve(const std::string& address, uint16_t port, int ranks);

enum class Kind : uint32_t { kHello = 1, kReady, kBeat, kBlock, kHas, kSettled };

struct Frame {
  Kind kind = Kind::kBeat;
  uint32_t tag = 0;
  uint64_t ordinal = 0;
  uint64_t offset = 0;  // of the block, in bytes
  uint32_t length = 0;  // the bytes that follow
  uint32_t rank = 0;
};

class StarTask;

// The engine of a rank. It sends blocks of kBlock bytes no more than kWindow ahead of the results,
// so other ranks may lack the last kWindow that this rank has.
class StarEngine final : public Engine {
 public:
  static constexpr size_t kBlock = 32 << 10;
  static constexpr size_t kWindow = 4;

  StarEngine(std::string address, uint16_t port, int rank);
  ~StarEngine() override;

  // Call after the context has joined; the engine must end before the context. `progress` is the
  // context's.
  void start(ContextImpl& context, Progress& progress);
  void stop();
  uint64_t blocks() const { return blocks_; }  // blocks whose sums have arrived
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

  std::mutex mutex_;  // protects the connection and the outgoing blocks
  std::condition_variable wake_;
  int fd_ = -1;
  std::deque<std::string> outgoing_;

  // Protected by the lock of Progress:
  bool is_ready_ = false;
  std::map<Key, StarTask*> tasks_;
  std::map<Key, std::vector<Retained>> retained_;
};

}  // namespace nezha::star
