// SPDX-License-Identifier: Apache-2.0
// Arbitrary sequences of frames that decode() accepts, from any child or the parent, for the slots
// of a switch. All output must be within its limits. If the children contribute to a block as hosts
// do, its result must be the sum of each child's contribution, counted once.
//
// The input: a byte of options, and six bytes for each frame.
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "flare_offload/core/slot_table.h"

namespace nezha::flare {
namespace {

constexpr int kChildren = 4;
constexpr size_t kPayload = 64;
constexpr size_t kHonest = 8;  // bytes of an honest contribution
constexpr uint32_t kHonestOperation = 1;
constexpr uint32_t kFirst = 0xfffffffa;  // wraps soon

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_honest(const BlockId& block, size_t length) {
  return block.operation_id == kHonestOperation && block.type == DataType::kUint8 &&
         block.operation == ReduceOperation::kSum && length == kHonest;
}

uint8_t honest(int child, uint32_t seq) {
  return static_cast<uint8_t>(seq * 31 + static_cast<uint32_t>(child) * 101 + 7);
}

uint8_t honest_sum(uint32_t seq) {
  unsigned sum = 0;
  for (int child = 0; child < kChildren; ++child) sum += honest(child, seq);
  return static_cast<uint8_t>(sum);
}

class Judge final : public Outlet {
 public:
  explicit Judge(bool is_root) : is_root_(is_root) {}

  void to_parent(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    require(!is_root_ && !header.is_down && header.type != FrameType::kResult &&
            header.type != FrameType::kPending);
    judge(header, payload, header.type == FrameType::kContribution);
  }
  void to_child(int child, const FrameHeader& header,
                absl::Span<const std::byte> payload) override {
    require(child >= 0 && child < kChildren && header.is_down &&
            header.type != FrameType::kContribution);
    judge(header, payload, header.type == FrameType::kResult && is_root_);
  }
  void to_children(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    to_child(0, header, payload);
  }

 private:
  static void judge(const FrameHeader& header, absl::Span<const std::byte> payload, bool is_sum) {
    std::array<std::byte, kMaxDatagram> datagram;
    static Authenticator authenticator{Key{}};
    const size_t size = encode(header, payload, authenticator, datagram.data());
    require(decode({datagram.data(), size}).has_value());
    if (!is_sum) return;
    require(payload.size() <= kPayload);
    if (!is_honest(header.block, payload.size())) return;
    for (const std::byte byte : payload) {
      require(std::to_integer<uint8_t>(byte) == honest_sum(header.block.seq));
    }
  }

  const bool is_root_;
};

void feed(SlotTable& table, const uint8_t* bytes) {
  const int from = bytes[0] % (kChildren + 1);  // the last one is the parent
  FrameHeader header;
  header.type = static_cast<FrameType>(1 + (bytes[0] >> 4) % 5);
  header.is_numbered = bytes[1] % 2 != 0;
  header.is_down = (from == kChildren) == (bytes[2] < 224);  // sometimes the wrong direction
  header.number = static_cast<uint16_t>(bytes[1] / 2 - 4);
  header.block = {.seq = kFirst - 4 + bytes[2] % 32,
                  .operation_id = kHonestOperation,
                  .type = DataType::kUint8};
  if (bytes[3] > 240) header.block.operation_id = bytes[3];
  if (bytes[4] > 240) header.block.type = static_cast<DataType>(1 + (bytes[4] - 241) % 12);
  std::array<std::byte, 2 * kPayload> payload;
  payload.fill(std::byte{honest(from, header.block.seq)});
  size_t length = bytes[5] > 240 ? size_t{8} * (bytes[5] - 240) : kHonest;
  if (header.type == FrameType::kMismatch) {
    length = 24;
    payload.fill(std::byte{0x11});
  } else if (header.type == FrameType::kLost) {
    length = 4;
    payload = {std::byte{bytes[4]}, {}, std::byte{bytes[5]}, std::byte{bytes[3]}};
  }
  const Frame frame = {header, absl::MakeSpan(payload).first(length)};
  if (from == kChildren) {
    table.from_parent(frame);
  } else {
    table.from_child(from, frame);
  }
}

void run(absl::Span<const uint8_t> input) {
  if (input.empty()) return;
  const bool is_root = input[0] % 2 == 0;
  Judge judge(is_root);
  const SlotTableOptions options{.window = uint32_t{1} << (input[0] / 2 % 3),
                                 .first_seq = kFirst,
                                 .children = std::vector<RankRange>(kChildren, {0, 1}),
                                 .is_root = is_root,
                                 .payload = kPayload,
                                 .reproducible = input[0] / 8 % 2 == 0,
                                 .buffers = 1 + input[0] / 16 % kChildren};
  require(check(options).ok());
  SlotTable table(options, &judge);
  for (size_t at = 1; at + 6 <= input.size(); at += 6) feed(table, &input[at]);
}

}  // namespace
}  // namespace nezha::flare

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  nezha::flare::run({data, size});
  return 0;
}
