// Ring allreduce: each rank receives from its left neighbour and sends to its right one only.
//
// The vector is cut into n chunks. In the first n-1 steps (reduce-scatter) partial sums of chunks
// travel around the ring, each rank adding its own part, until rank r holds the final chunk r+1; in
// n-1 more steps (allgather) the final chunks travel on until all ranks have all of them. At step t
// rank r sends chunk r-t and receives chunk r-t-1 (modulo n) throughout, so all a rank does is:
// inject its own chunk, and forward what comes, reduced on the way if t < n-1. An average is
// divided by the rank that completes the chunk, before it is forwarded. (P. Patarasuk, X. Yuan:
// Bandwidth optimal all-reduce algorithms for clusters of workstations.)
//
// It runs in segments: each is reduced and forwarded as it lands, on the rail it came by. What is
// in circulation is bounded where it begins: a rank injects only kWindow bytes more of its chunk
// than have come back to it as final values. So partial sums never take more than n-2 windows of
// scratch here, and no rank ever has to stop reading.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collectives/engine.h"

namespace nezha {

class Ring final : public Task, Receiver, Sender {
 public:
  Ring(const Group& group, const Slice& slice, TaskOwner& owner);
  ~Ring() override { detach(); }

  static std::vector<int> peers(int rank, int size) {
    return {(rank + 1) % size, (rank + size - 1) % size};
  }

  void start(const EnginePlan& plan);
  std::string describe() const override;

 private:
  // A place in the run of chunks that one neighbour sends the other.
  struct Place {
    int step;         // 0 .. 2n-3
    size_t in_chunk;  // bytes
  };

  // Receiver and Sender
  std::byte* place(uint64_t offset, size_t length) override;
  void landed(uint64_t offset, size_t length, Rail rail) override;
  void released(uint64_t offset, size_t length) override;
  void settled() override;
  void failed(const absl::Status& why) override;
  void mismatched(const wire::MessageInfo& theirs) override;

  int steps() const { return 2 * group_.size - 2; }
  bool is_partial_sum(int step) const { return step < group_.size - 2; }  // also when forwarded
  bool is_reduced(int step) const { return step < group_.size - 1; }      // by the receiver
  Range chunk_received(int step) const;
  Place locate(uint64_t offset) const;
  size_t offset_in_vector(const Place& at) const;
  uint64_t forward_offset(const Place& at) const;
  bool all_received() const { return received_ == receive_offsets_.back(); }
  absl::StatusOr<const std::byte*> reduce(const Place& at, size_t length);
  void inject();
  void check_complete();
  void detach() override;

  static constexpr uint64_t kWindow = 1 << 20;  // bytes

  const Group& group_;
  Slice slice_;
  Partition partition_;
  Reducer reducer_;
  EnginePlan plan_;
  Channel* left_ = nullptr;
  Channel* right_ = nullptr;
  std::vector<uint64_t> receive_offsets_, send_offsets_;  // of each step's chunk in its message
  uint64_t injected_ = 0, returned_ = 0, received_ = 0;   // bytes
  bool settling_ = false;
  bool posted_ = false;
  absl::Status failure_;  // of a reduction
  Inbox::Ticket* incoming_ = nullptr;
  OutMessage* outgoing_ = nullptr;
  // Partial sums, by where they are in the outgoing message.
  absl::flat_hash_map<uint64_t, Buffer> scratch_;
};

}  // namespace nezha
