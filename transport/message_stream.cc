// SPDX-License-Identifier: Apache-2.0
#include "transport/message_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace nezha {

MessageStream::MessageStream(Channel& channel, uint64_t context, uint64_t tag, Callbacks callbacks)
    : channel_(channel), context_(context), tag_(tag), callbacks_(std::move(callbacks)) {}

MessageStream::~MessageStream() {
  if (ticket_ != nullptr) channel_.cancel(ticket_);
  for (Outgoing& outgoing : outgoing_) channel_.abandon(*outgoing.message);
}

wire::MessageInfo MessageStream::info(uint64_t total) const {
  return {.context = context_, .tag = tag_, .total = total};
}

// ---- Sending -----------------------------------------------------------------------------------

void MessageStream::send(const std::string& message) {
  if (has_failed_) return;
  // Opens both messages before it pushes either: pushing lets other messages move, which may end an
  // operation, which may send the next message of this stream.
  Outgoing& header = open(wire::encode_number(message.size()));
  Outgoing& body = open(message);
  push(header);
  if (!has_failed_) push(body);
}

MessageStream::Outgoing& MessageStream::open(std::string bytes) {
  Outgoing& outgoing = outgoing_.emplace_back();
  outgoing.stream = this;
  outgoing.bytes = std::move(bytes);
  outgoing.message = channel_.open(info(outgoing.bytes.size()), {.is_urgent = true}, &outgoing);
  return outgoing;
}

// `outgoing` may be gone afterwards.
void MessageStream::push(const Outgoing& outgoing) {
  OutMessage& message = *outgoing.message;
  channel_.push(message, 0, reinterpret_cast<const std::byte*>(outgoing.bytes.data()),
                outgoing.bytes.size());
  channel_.settle(message);
}

void MessageStream::forget(const Outgoing* outgoing) {
  outgoing_.remove_if([&](const Outgoing& candidate) { return &candidate == outgoing; });
}

void MessageStream::Outgoing::failed(const absl::Status& why) {
  MessageStream& owner = *stream;
  // The channel still holds the message, and lets go of it after this.
  owner.channel_.abandon(*message);
  owner.forget(this);
  owner.failed(why);
}

// ---- Receiving ---------------------------------------------------------------------------------

// Receives that many bytes and whatever follows, until something has not come yet. This is a loop
// and no recursion, since a peer may have sent any number of messages.
void MessageStream::receive(uint64_t total) {
  while (total > 0) {
    is_header_ = !is_header_;
    incoming_.assign(total, '\0');
    received_ = 0;
    is_posting_ = true;
    Inbox::Ticket* ticket = channel_.post(info(total), this);
    is_posting_ = false;
    if (has_failed_) return;
    if (received_ < incoming_.size()) {
      ticket_ = ticket;
      channel_.set_awaited(ticket_, is_awaited_);
      return;
    }
    total = on_complete();
  }
}

void MessageStream::set_awaited(bool is_awaited) {
  is_awaited_ = is_awaited;
  if (ticket_ != nullptr) channel_.set_awaited(ticket_, is_awaited);
}

std::byte* MessageStream::place(uint64_t offset, size_t /*length*/) {
  return reinterpret_cast<std::byte*>(incoming_.data()) + offset;
}

void MessageStream::landed(uint64_t /*offset*/, size_t length, Rail /*rail*/) {
  received_ += length;
  if (received_ < incoming_.size() || is_posting_) return;
  ticket_ = nullptr;  // the inbox has retired it
  receive(on_complete());
}

// Returns how many bytes come next; 0: nothing is to come.
uint64_t MessageStream::on_complete() {
  const std::string message = std::exchange(incoming_, {});
  if (!is_header_) {
    callbacks_.on_message(message);
    return has_failed_ ? 0 : kHeaderBytes;
  }
  const auto length =
      wire::decode_number({reinterpret_cast<const std::byte*>(message.data()), message.size()});
  if (length.ok() && *length > 0 && *length <= kMaxBytes) return *length;
  failed(
      absl::InvalidArgumentError(absl::StrCat("a peer announced a message of ", length.value_or(0),
                                              " bytes; a message has 1 to ", kMaxBytes)));
  return 0;
}

void MessageStream::failed(const absl::Status& why) {
  has_failed_ = true;
  ticket_ = nullptr;  // the inbox cancels it
  callbacks_.on_failed(why);
}

void MessageStream::mismatched(const wire::MessageInfo& theirs) {
  failed(absl::InvalidArgumentError(absl::StrCat("a peer sent a message of ", theirs.total,
                                                 " bytes, but had announced another length")));
}

}  // namespace nezha
