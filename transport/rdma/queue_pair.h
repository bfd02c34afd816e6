// SPDX-License-Identifier: Apache-2.0
// One end of a reliable RDMA connection.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/greeting.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

// All calls are made under Progress's lock. After `destroy`, neither this device nor the peer reads
// or writes anybody's memory through the queue pair, and all requests are refused.
class QueuePair {
 public:
  // How many work requests may be under way at a time.
  struct Depth {
    uint32_t sends = 0;  // including READs
    uint32_t receives = 0;
  };

  // The queue pair takes receives, and nothing else, until it is connected.
  static absl::StatusOr<std::unique_ptr<QueuePair>> create(std::shared_ptr<Adapter> adapter,
                                                           const Depth& depth, Client* client);
  ~QueuePair() { destroy(); }
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // Returns what the peer must know of the queue pair; the caller adds the rest.
  Greeting greeting() const;
  // Connects to the peer's device, which must be on a network of the same kind. An iWARP device's
  // queue pair is connected by the connection manager, and then this does not block. With RoCE the
  // kernel asks the network for the peer's hardware address, which takes up to a second. So this is
  // called without the lock, and nothing else of the queue pair is called meanwhile.
  absl::Status connect(const Greeting& peers);
  uint32_t number() const { return pair_->qp_num; }
  void destroy() noexcept;

  // `id` comes back with the completion. Messages of at most `most_inline_` bytes are copied at
  // once.
  absl::Status receive(uint32_t id, const ibv_sge& into);
  absl::Status send(uint32_t id, const ibv_sge& from);
  absl::Status read(uint32_t id, const ibv_sge& into, uint64_t address, uint32_t key);

  // Returns how many READs may be under way at a time. The number is known once the queue pair is
  // connected.
  int most_reads() const { return most_reads_; }
  // Returns the bytes of a packet's payload. They are known once the queue pair is connected.
  size_t mtu() const { return mtu_; }

 private:
  QueuePair(std::shared_ptr<Adapter> adapter, const Depth& depth)
      : adapter_(std::move(adapter)), depth_(depth) {}
  absl::Status open(Client* client);
  absl::Status modify(ibv_qp_attr& attributes, int mask, const char* to);
  uint64_t whole_id(uint32_t id) const { return uint64_t{serial_} << 32 | id; }
  absl::Status post(ibv_send_wr& work);

  // The device sends a packet again whenever this exponent's time, 4.096 us * 2^12 = 17 ms, has
  // passed, at most kRetries times. 7 would mean for ever on some devices.
  static constexpr uint8_t kTimeout = 12;
  static constexpr uint8_t kRetries = 6;
  static constexpr uint32_t kInline = 128;  // bytes, if the device supports it

  std::shared_ptr<Adapter> adapter_;
  const Depth depth_;
  uint32_t serial_ = 0;  // the number of the adapter's client
  ibv_qp* pair_ = nullptr;
  uint32_t first_packet_ = 0;
  uint32_t most_inline_ = 0;
  int most_reads_ = 0;
  size_t mtu_ = 0;
};

}  // namespace nezha::rdma
