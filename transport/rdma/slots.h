// SPDX-License-Identifier: Apache-2.0
// A link's own registered memory: places for the messages that it sends and receives, and one for
// payload on its way to memory that cannot be registered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/verbs.h"

namespace nezha::rdma {

class Slots {
 public:
  static constexpr uint32_t kPayload = 16 << 10;  // bytes of the longest segment that is copied
  static constexpr uint32_t kSize = kPayload + 128;
  static constexpr uint32_t kSends = 16;
  static constexpr uint32_t kReceives = 32;
  static constexpr uint32_t kBounce = 64 << 10;

  static absl::StatusOr<std::unique_ptr<Slots>> create(std::shared_ptr<Adapter> adapter);
  ~Slots();  // called once no queue pair uses the memory
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  std::byte* to_send(uint64_t number) const { return at(number % kSends); }
  std::byte* received(uint32_t number) const { return at(kSends + number); }
  std::byte* bounce() const { return at(kSends + kReceives); }
  ibv_sge part(const std::byte* begin, size_t bytes) const {
    return {.addr = reinterpret_cast<uintptr_t>(begin),
            .length = static_cast<uint32_t>(bytes),
            .lkey = region_->lkey};
  }

 private:
  explicit Slots(std::shared_ptr<Adapter> adapter) : adapter_(std::move(adapter)) {}
  absl::Status open();
  std::byte* at(uint64_t number) const { return memory_ + number * kSize; }

  static constexpr size_t kBytes = size_t{kSends + kReceives} * kSize + kBounce;

  std::shared_ptr<Adapter> adapter_;
  std::byte* memory_ = nullptr;
  ibv_mr* region_ = nullptr;
};

}  // namespace nezha::rdma
