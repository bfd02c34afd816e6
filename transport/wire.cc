// SPDX-License-Identifier: Apache-2.0
#include "transport/wire.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/fields.h"

namespace nezha::wire {
namespace {

using Writer = FieldWriter;
using Reader = FieldReader;

constexpr absl::string_view kMagic = "NEZHA\r\n";  // and a zero: 8 bytes; a text protocol breaks it
constexpr size_t kMagicSize = 8;

absl::Status check_magic(Reader& reader) {
  const absl::string_view magic = reader.get_text(kMagicSize);
  if (magic.substr(0, kMagic.size()) != kMagic || magic.back() != '\0') {
    return absl::InvalidArgumentError("the other end does not speak nezha's protocol");
  }
  return absl::OkStatus();
}

bool is_known(FrameType type) { return type >= FrameType::kData && type <= FrameType::kJoin; }

}  // namespace

HelloBytes encode(const Hello& hello) {
  HelloBytes bytes{};
  Writer(bytes.data())
      .put(kMagic, kMagicSize)
      .put(kVersion)
      .put(uint16_t{0})
      .put(hello.generation)
      .put(hello.job)
      .put(hello.source)
      .put(hello.target)
      .put(hello.link_id)
      .put(hello.rail, kMaxRailName + 1);
  return bytes;
}

absl::StatusOr<Hello> decode_hello(const HelloBytes& bytes) {
  Reader reader(bytes.data());
  if (absl::Status status = check_magic(reader); !status.ok()) return status;
  const auto version = reader.get<uint16_t>();
  if (version != kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the peer speaks version ", version, " of the protocol, and this process speaks version ",
        kVersion, "; install the same version of nezha on all hosts"));
  }
  reader.get<uint16_t>();
  Hello hello;
  hello.generation = reader.get<uint32_t>();
  hello.job = reader.get_id();
  hello.source = reader.get_id();
  hello.target = reader.get_id();
  hello.link_id = reader.get<uint64_t>();
  const absl::string_view rail = reader.get_text(kMaxRailName + 1);
  const size_t length = rail.find('\0');
  if (length == rail.npos || length == 0) {
    return absl::InvalidArgumentError("the peer sent a hello without a rail name");
  }
  hello.rail = std::string(rail.substr(0, length));
  return hello;
}

WelcomeBytes encode(const Welcome& welcome) {
  WelcomeBytes bytes{};
  Writer(bytes.data())
      .put(kMagic, kMagicSize)
      .put(welcome.version)
      .put(static_cast<uint16_t>(welcome.code))
      .put(welcome.generation);
  return bytes;
}

absl::StatusOr<Welcome> decode_welcome(const WelcomeBytes& bytes) {
  Reader reader(bytes.data());
  if (absl::Status status = check_magic(reader); !status.ok()) return status;
  Welcome welcome;
  welcome.version = reader.get<uint16_t>();
  const auto code = reader.get<uint16_t>();
  if (code > static_cast<uint16_t>(WelcomeCode::kClosing)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent a welcome with the unknown code ", code));
  }
  welcome.code = static_cast<WelcomeCode>(code);
  welcome.generation = reader.get<uint32_t>();
  return welcome;
}

void encode(const FrameHeader& header, std::byte* out) {
  Writer(out)
      .put(static_cast<uint8_t>(header.type))
      .put(header.flags)
      .put(uint16_t{0})
      .put(header.length)
      .put(header.acked)
      .put(header.credit);
}

absl::StatusOr<FrameHeader> decode_frame(const std::byte* bytes) {
  Reader reader(bytes);
  FrameHeader header;
  header.type = static_cast<FrameType>(reader.get<uint8_t>());
  header.flags = reader.get<uint8_t>();
  reader.get<uint16_t>();
  header.length = reader.get<uint32_t>();
  header.acked = reader.get<uint64_t>();
  header.credit = reader.get<uint64_t>();
  if (!is_known(header.type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent a frame of the unknown type ", static_cast<int>(header.type)));
  }
  const uint32_t limit = header.type == FrameType::kData ? kMaxSegment : kMaxControlBody;
  if (header.length > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent a frame of ", header.length, " bytes; the limit is ", limit));
  }
  return header;
}

void encode(const DataHeader& header, std::byte* out) {
  Writer(out)
      .put(header.info.context)
      .put(header.info.tag)
      .put(header.info.signature)
      .put(header.info.total)
      .put(header.number)
      .put(header.offset)
      .put(header.info.plan)
      .put(header.info.epoch)
      .put(header.previous)
      .put(header.attempt)
      .put(header.info.root)
      .put(uint32_t{0});
}

absl::StatusOr<DataHeader> decode_data(const std::byte* bytes, uint32_t length) {
  Reader reader(bytes);
  DataHeader header;
  header.info.context = reader.get<uint64_t>();
  header.info.tag = reader.get<uint64_t>();
  header.info.signature = reader.get<uint64_t>();
  header.info.total = reader.get<uint64_t>();
  header.number = reader.get<uint64_t>();
  header.offset = reader.get<uint64_t>();
  header.info.plan = reader.get<uint32_t>();
  header.info.epoch = reader.get<uint32_t>();
  header.previous = reader.get<uint32_t>();
  header.attempt = reader.get<uint32_t>();
  header.info.root = reader.get<uint32_t>();
  if (header.number == 0 || header.previous >= header.number) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the peer sent a segment of message ", header.number, " that follows the message ",
        header.previous, " places before, which does not exist"));
  }
  if (header.info.total > kMaxMessage || header.offset > header.info.total ||
      length > header.info.total - header.offset) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent a segment [", header.offset,
                                                   ", +", length, ") outside of its message of ",
                                                   header.info.total, " bytes"));
  }
  return header;
}

std::string encode_number(uint64_t number) {
  std::string body(sizeof(number), '\0');
  Writer(reinterpret_cast<std::byte*>(body.data())).put(number);
  return body;
}

absl::StatusOr<uint64_t> decode_number(absl::Span<const std::byte> body) {
  if (body.size() != sizeof(uint64_t)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent a control frame of ", body.size(), " bytes instead of 8"));
  }
  return Reader(body.data()).get<uint64_t>();
}

std::string encode_id(const UniqueId& id) {
  std::string body(sizeof id.high + sizeof id.low, '\0');
  Writer(reinterpret_cast<std::byte*>(body.data())).put(id);
  return body;
}

absl::StatusOr<UniqueId> decode_id(absl::Span<const std::byte> body) {
  if (body.size() != sizeof(uint64_t) * 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent a control frame of ", body.size(), " bytes instead of 16"));
  }
  return Reader(body.data()).get_id();
}

namespace {
constexpr size_t kLinkDownSize = 12;
}  // namespace

std::string encode(const LinkDown& down) {
  std::string body(kLinkDownSize, '\0');
  Writer(reinterpret_cast<std::byte*>(body.data())).put(down.link).put(down.lost_packet);
  return body;
}

absl::StatusOr<LinkDown> decode_link_down(absl::Span<const std::byte> body) {
  if (body.size() != kLinkDownSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent a control frame of ", body.size(), " bytes instead of 12"));
  }
  Reader reader(body.data());
  LinkDown down;
  down.link = reader.get<uint64_t>();
  down.lost_packet = reader.get<uint32_t>();
  return down;
}

namespace {
constexpr size_t kAbortSize = 24;  // without the ranks and the text
}  // namespace

std::string encode(const Abort& abort) {
  const size_t lost = std::min(abort.lost.size(), kMaxLost);
  const size_t fixed = kAbortSize + lost * sizeof(uint32_t);
  const absl::string_view reason =
      absl::string_view(abort.reason).substr(0, kMaxControlBody - fixed);
  std::string body(fixed + reason.size(), '\0');
  Writer writer(reinterpret_cast<std::byte*>(body.data()));
  writer.put(abort.context).put(abort.rank).put(static_cast<uint32_t>(lost));
  for (size_t i = 0; i < lost; ++i) writer.put(abort.lost[i]);
  writer.put(reason, reason.size());
  return body;
}

absl::StatusOr<Abort> decode_abort(absl::Span<const std::byte> body) {
  const auto error = absl::InvalidArgumentError(absl::StrCat(
      "the peer sent an abort frame of ", body.size(), " bytes, which is a wrong length"));
  if (body.size() < kAbortSize) return error;
  Reader reader(body.data());
  Abort abort;
  abort.context = reader.get_id();
  abort.rank = reader.get<uint32_t>();
  const auto lost = reader.get<uint32_t>();
  if (lost > kMaxLost || body.size() < kAbortSize + lost * sizeof(uint32_t)) return error;
  for (size_t i = 0; i < lost; ++i) abort.lost.push_back(reader.get<uint32_t>());
  for (const char c : reader.get_text(body.size() - kAbortSize - lost * sizeof(uint32_t))) {
    // The text ends up in logs and exceptions, so nothing in it may move a terminal's cursor.
    abort.reason += c >= ' ' && c < 127 ? c : '?';
  }
  return abort;
}

namespace {
constexpr size_t kRollCallSize = 41;
}  // namespace

std::string encode(const RollCall& call) {
  std::string body(kRollCallSize, '\0');
  Writer(reinterpret_cast<std::byte*>(body.data()))
      .put(call.context)
      .put(call.tag)
      .put(call.rank)
      .put(call.ordinal)
      .put(call.signature)
      .put(static_cast<uint8_t>(call.kind));
  return body;
}

absl::StatusOr<RollCall> decode_roll_call(absl::Span<const std::byte> body) {
  if (body.size() != kRollCallSize) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent a roll call of ", body.size(),
                                                   " bytes, which is a wrong length"));
  }
  Reader reader(body.data());
  RollCall call;
  call.context = reader.get_id();
  call.tag = reader.get<uint32_t>();
  call.rank = reader.get<uint32_t>();
  call.ordinal = reader.get<uint64_t>();
  call.signature = reader.get<uint64_t>();
  call.kind = static_cast<RollCallKind>(reader.get<uint8_t>());
  if (call.kind < RollCallKind::kEntered || call.kind > RollCallKind::kSilent) {
    return absl::InvalidArgumentError(absl::StrCat("the peer sent a roll call of the unknown kind ",
                                                   static_cast<int>(call.kind)));
  }
  return call;
}

}  // namespace nezha::wire
