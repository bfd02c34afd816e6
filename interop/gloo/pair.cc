// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/pair.h"

#include <utility>

namespace nezha::interop {

Pair::Pair(std::shared_ptr<Member> member, int rank,
           std::function<std::chrono::milliseconds()> timeout)
    : member_(std::move(member)), rank_(rank), timeout_(std::move(timeout)) {
  localRank_ = 0;  // Gloo leaves it unset
}

std::unique_ptr<BoundBuffer> Pair::create(BoundBuffer::End end, int slot, void* memory,
                                          size_t bytes) {
  return std::make_unique<BoundBuffer>(end, member_, rank_, slot, memory, bytes, timeout_);
}

}  // namespace nezha::interop
