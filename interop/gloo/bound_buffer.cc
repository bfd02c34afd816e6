// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/bound_buffer.h"

#include <gloo/common/error.h>
#include <gloo/common/logging.h>

#include <utility>

namespace nezha::interop {

// Gloo's macros refer to these.
namespace enforce_detail = ::gloo::enforce_detail;
using ::gloo::EnforceNotMet;
using ::gloo::MakeString;

BoundBuffer::BoundBuffer(End end, std::shared_ptr<Member> member, int rank, int slot, void* memory,
                         size_t bytes, std::function<std::chrono::milliseconds()> timeout)
    : ::gloo::transport::Buffer(slot, memory, bytes),
      hold_(memory, bytes),
      end_(end),
      member_(std::move(member)),
      rank_(rank),
      timeout_(std::move(timeout)),
      completions_(member_->completions(end == End::kSends ? "send" : "recv")) {
  if (end_ == End::kSends) return;
  try {
    member_->bind(*completions_, rank, slot, static_cast<std::byte*>(memory), bytes);
  } catch (...) {
    member_->give_back(std::move(completions_));
    throw;
  }
}

BoundBuffer::~BoundBuffer() { member_->give_back(std::move(completions_)); }

void BoundBuffer::send(size_t offset, size_t bytes, size_t place) {
  GLOO_ENFORCE(end_ == End::kSends, "a buffer that receives cannot send");
  GLOO_ENFORCE_LE(offset, size_);
  GLOO_ENFORCE_LE(bytes, size_ - offset);
  member_->send_bound(*completions_, rank_, slot_, static_cast<std::byte*>(ptr_) + offset, bytes,
                      place);
  ++unwaited_;
}

void BoundBuffer::waitSend() {
  GLOO_ENFORCE(end_ != End::kSends || unwaited_ > 0, "No send to wait for");
  wait(End::kSends);
  --unwaited_;
}

void BoundBuffer::wait(End end) {
  GLOO_ENFORCE(end == end_, "a buffer at one end of a pair only sends, at the other only receives");
  std::chrono::milliseconds timeout = timeout_();
  // A timeout of 0 means no limit in Gloo for a wait of a bound buffer.
  if (timeout == ::gloo::kNoTimeout) timeout = std::chrono::milliseconds::max();
  member_->wait(*completions_, timeout);
}

}  // namespace nezha::interop
