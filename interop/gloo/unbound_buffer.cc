// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/unbound_buffer.h"

#include <gloo/common/logging.h>

#include <utility>

namespace nezha::interop {

// Gloo's macros refer to these.
namespace enforce_detail = ::gloo::enforce_detail;
using ::gloo::EnforceNotMet;
using ::gloo::MakeString;

UnboundBuffer::UnboundBuffer(std::shared_ptr<::gloo::transport::Context> context,
                             std::shared_ptr<Member> member, void* memory, size_t bytes)
    : ::gloo::transport::UnboundBuffer(memory, bytes),
      hold_(memory, bytes),
      context_(std::move(context)),
      member_(std::move(member)),
      sends_(member_->completions("send")),
      receives_(member_->completions("recv")) {}

UnboundBuffer::~UnboundBuffer() {
  member_->give_back(std::move(sends_));
  member_->give_back(std::move(receives_));
}

bool UnboundBuffer::wait(Completions& completions, int* rank, std::chrono::milliseconds timeout) {
  const bool is_unset = timeout == ::gloo::transport::kUnsetTimeout;
  const std::optional<int> ended =
      member_->wait(completions, is_unset ? context_->getTimeout() : timeout);
  if (ended && rank != nullptr) *rank = *ended;
  return ended.has_value();
}

bool UnboundBuffer::waitRecv(int* rank, std::chrono::milliseconds timeout) {
  return wait(*receives_, rank, timeout);
}

bool UnboundBuffer::waitSend(int* rank, std::chrono::milliseconds timeout) {
  return wait(*sends_, rank, timeout);
}

size_t UnboundBuffer::checked_length(size_t offset, size_t bytes) const {
  if (bytes == 0) return 0;  // an empty range is valid at any offset
  GLOO_ENFORCE_LE(offset, size);
  if (bytes == kUnspecifiedByteCount) return size - offset;
  GLOO_ENFORCE_LE(bytes, size - offset);
  return bytes;
}

void UnboundBuffer::send(int rank, uint64_t slot, size_t offset, size_t bytes) {
  const size_t length = checked_length(offset, bytes);
  member_->send(*sends_, rank, slot, at(offset), length);
}

void UnboundBuffer::recv(int rank, uint64_t slot, size_t offset, size_t bytes) {
  recv(std::vector<int>{rank}, slot, offset, bytes);
}

void UnboundBuffer::recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t bytes) {
  const size_t length = checked_length(offset, bytes);
  member_->receive(*receives_, ranks, slot, at(offset), length);
}

}  // namespace nezha::interop
