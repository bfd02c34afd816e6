// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/address.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace nezha::interop {
namespace {

constexpr absl::string_view kMagic = "nezha1";
constexpr absl::string_view kNoInterface = "-";
constexpr absl::string_view kMore = "+";
constexpr size_t kBytes = ::gloo::transport::Address::kMaxByteSize;

// Returns the FNV-1a of the text, which suffices to notice settings that differ by mistake.
std::string checksum(absl::string_view text) {
  uint32_t sum = 2166136261;
  for (const char each : text) sum = (sum ^ static_cast<unsigned char>(each)) * 16777619;
  return absl::StrCat(absl::Hex(sum, absl::kZeroPad8));
}

absl::Status bad() {
  return absl::InvalidArgumentError(
      "its address is not one of nezha's; every rank of a Gloo context needs nezha's device, by "
      "libnezha_gloo.so and NEZHA_RAILS for example");
}

}  // namespace

absl::StatusOr<Address> Address::of(const Record& record) {
  Address address;
  address.record_.process = record.process;
  address.settings_ = checksum(record.settings);
  address.text_ = absl::StrCat(kMagic, " ", record.process.str(), " ", address.settings_);
  for (const auto& [rail, at] : record.devices) {
    const auto chosen = record.interfaces.find(rail);
    const bool is_chosen = chosen != record.interfaces.end();
    const std::string entry = absl::StrCat(
        " ", rail, " ", is_chosen ? chosen->second : std::string(kNoInterface), " ", at);
    if (address.text_.size() + entry.size() + 1 + kMore.size() > kBytes) {
      address.is_complete_ = false;
      continue;
    }
    address.text_ += entry;
    address.record_.devices[rail] = at;
    if (is_chosen) address.record_.interfaces[rail] = chosen->second;
  }
  if (address.record_.devices.empty()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the names and addresses of the rails are too long for Gloo, whose addresses have ", kBytes,
        " bytes at most; give the rails short names with ?rail=NAME"));
  }
  if (!address.is_complete_) absl::StrAppend(&address.text_, " ", kMore);
  return address;
}

absl::StatusOr<Address> Address::parse(const std::vector<char>& bytes) {
  const absl::string_view padded(bytes.data(), bytes.size());
  Address address;
  address.text_ = std::string(absl::StripTrailingAsciiWhitespace(padded));
  std::vector<std::string> words = absl::StrSplit(address.text_, ' ');
  if (bytes.size() != kBytes || words.size() < 2 || words[0] != kMagic) return bad();
  if (words.back() == kMore) {
    address.is_complete_ = false;
    words.pop_back();
  }
  const auto process = UniqueId::parse(words[1]);
  if (!process.ok() || words.size() < 6 || words.size() % 3 != 0) return bad();
  address.record_.process = *process;
  address.settings_ = words[2];
  for (size_t i = 3; i < words.size(); i += 3) {
    if (words[i].empty() || words[i + 1].empty() || words[i + 2].empty()) return bad();
    address.record_.devices[words[i]] = words[i + 2];
    if (words[i + 1] != kNoInterface) address.record_.interfaces[words[i]] = words[i + 1];
  }
  return address;
}

std::vector<char> Address::bytes() const {
  std::vector<char> bytes(text_.begin(), text_.end());
  bytes.resize(kBytes, ' ');
  return bytes;
}

}  // namespace nezha::interop
