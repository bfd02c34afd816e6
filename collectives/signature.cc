#include "collectives/signature.h"

#include "absl/strings/str_cat.h"

namespace nezha {
namespace {

// The number comes from a peer.
template <typename Enum>
std::string name_or_number(uint64_t number) {
  const char* name = name_of(static_cast<Enum>(number));
  return name == nullptr ? absl::StrCat(number) : name;
}

// As a user would say it. The count is exact below 2^32 elements.
std::string describe(const wire::MessageInfo& info) {
  const auto byte = [&](int shift) { return (info.signature >> shift) & 0xff; };
  const uint64_t collective = byte(56);
  return absl::StrCat(collective == static_cast<uint64_t>(Collective::kAllreduce)
                          ? "allreduce"
                          : absl::StrCat("collective ", collective),
                      " of ", info.signature & 0xffffffff, " elements, type ",
                      name_or_number<DataType>(byte(40)), ", operation ",
                      name_or_number<ReduceOperation>(byte(32)), ", by ",
                      algorithm_name(static_cast<Algorithm>(byte(48) & 0x7f)),
                      (byte(48) & 0x80) != 0 ? ", reproducible, " : ", ", info.total,
                      " bytes on the way to this rank, plan ", info.plan, ", epoch ", info.epoch);
}

}  // namespace

std::string algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      break;
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kRecursiveDoubling:
      return "recursive doubling";
    case Algorithm::kHalvingDoubling:
      return "halving-doubling";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kBcube:
      return "bcube";
  }
  return absl::StrCat("algorithm ", static_cast<int>(algorithm));
}

absl::Status mismatch_error(int peer, const wire::MessageInfo& ours,
                            const wire::MessageInfo& theirs) {
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", peer, " calls another operation by the tag ", ours.tag & 0xffffffff,
                   ": this rank an ", describe(ours), "; rank ", peer, " an ", describe(theirs),
                   ". All ranks must call the same operations of one tag in the same order"));
}

}  // namespace nezha
