// SPDX-License-Identifier: Apache-2.0
#include "collectives/signature.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace nezha {
namespace {

// The number comes from a peer.
template <typename Enum>
std::string name_or_number(uint64_t number) {
  const char* name = nameOf(static_cast<Enum>(number));
  return name == nullptr ? absl::StrCat(number) : name;
}

// Describes the operation as a user would. The count is exact below 2^32 elements.
std::string describe(uint64_t signature, std::optional<uint64_t> root) {
  const auto byte = [&](int shift) { return (signature >> shift) & 0xff; };
  const auto collective = static_cast<Collective>(byte(56));
  const CollectiveTraits* traits = find_traits(collective);
  std::string text = collective_name(collective, root);
  if (traits == nullptr || traits->has_elements) {
    if (is_length_known(collective)) {
      absl::StrAppend(&text, " of ", signature & 0xffffffff, " elements");
    }
    absl::StrAppend(&text, ", type ", name_or_number<DataType>(byte(40)));
    if (tells_blocks(collective) && root.has_value()) {
      absl::StrAppend(&text, ", blocks whose lengths have the checksum ", absl::Hex(*root));
    }
  }
  if (traits != nullptr && traits->reduces) {
    absl::StrAppend(&text, ", operation ", name_or_number<ReduceOperation>(byte(32)));
  }
  absl::StrAppend(&text, ", by ", schedule_name(static_cast<ScheduleKind>(byte(48) & 0x7f)),
                  (byte(48) & 0x80) != 0 ? ", reproducible" : "");
  return text;
}

std::string describe(const wire::MessageInfo& info, int to_rank) {
  return absl::StrCat(describe(info.signature, info.root), ", ", info.total,
                      " bytes on the way to rank ", to_rank, ", plan ", info.plan, ", epoch ",
                      info.epoch);
}

// Lists the counts as a user would: "3000, 2000, 1000 (6000 in all)".
std::string counts_of(const Operation& operation) {
  constexpr int kMost = 16;
  const size_t element = sizeOf(operation.type);
  const Blocks& blocks = *operation.blocks;
  std::string text;
  for (int i = 0; i < std::min(blocks.count(), kMost); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", blocks.block(i).length / element);
  }
  return absl::StrCat(text, blocks.count() > kMost ? ", ..." : "", " (", blocks.bytes() / element,
                      " in all)");
}

}  // namespace

std::string collective_name(Collective collective, std::optional<uint64_t> root) {
  const CollectiveTraits* traits = find_traits(collective);
  if (traits == nullptr) return absl::StrCat("collective ", static_cast<int>(collective));
  if (traits->to_root == nullptr || !root.has_value()) return traits->name;
  return absl::StrCat(traits->name, " ", traits->to_root, " rank ", *root);
}

absl::Status other_operation_error(int64_t own, int64_t rank, uint64_t tag, absl::string_view ours,
                                   absl::string_view theirs) {
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank, " calls another operation by the tag ", tag, ": rank ", own, " ",
                   ours, "; rank ", rank, " ", theirs,
                   ". All ranks must call the same operations of one tag in the same order"));
}

absl::Status mismatch_error(int own, int peer, const wire::MessageInfo& ours,
                            const wire::MessageInfo& theirs, const Operation& operation) {
  const bool is_of_counts = operation.blocks != nullptr && tells_blocks(operation.collective) &&
                            ours.signature == theirs.signature && ours.root != theirs.root;
  if (is_of_counts) {
    return absl::FailedPreconditionError(absl::StrCat(
        "ranks ", own, " and ", peer, " pass different counts to one ",
        collective_name(operation.collective, {}), " (tag ", operation.tag, "): rank ", own,
        " passes ", counts_of(operation), ", and rank ", peer, " passes other ones. The counts,",
        " which tell how many elements the block of each rank has, must be the same on all ranks"));
  }
  return other_operation_error(own, peer, ours.tag & 0xffffffff, describe(ours, own),
                               describe(theirs, own));
}

absl::Status disagreement_error(int own, uint32_t rank, uint32_t tag, uint64_t ours,
                                uint64_t theirs) {
  return other_operation_error(own, rank, tag, describe(ours, {}), describe(theirs, {}));
}

}  // namespace nezha
