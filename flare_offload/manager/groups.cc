// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/manager/groups.h"

#include <netinet/in.h>

#include <cstring>

namespace nezha::flare {
namespace {

// Returns the place of an address's last 32 bits.
std::byte* low_bits(Address& address) {
  auto* const bytes = reinterpret_cast<std::byte*>(&address.storage);
  return bytes + (address.family() == AF_INET6 ? offsetof(sockaddr_in6, sin6_addr) + 12
                                               : offsetof(sockaddr_in, sin_addr));
}

uint32_t low(Address address) {
  uint32_t bits = 0;
  std::memcpy(&bits, low_bits(address), sizeof bits);
  return ntohl(bits);
}

}  // namespace

std::optional<Address> plus(const Address& address, uint32_t count) {
  if (low(address) + count < count) return {};
  Address further = address;
  const uint32_t bits = htonl(low(address) + count);
  std::memcpy(low_bits(further), &bits, sizeof bits);
  return further;
}

std::optional<uint32_t> Groups::index_of(const Address& group) const {
  if (!range_ || group.family() != range_->first.family()) return {};
  const uint32_t index = low(group) - low(range_->first);
  if (index >= range_->count || !(plus(range_->first, index) == group)) return {};
  return index;
}

std::optional<Address> Groups::take() {
  if (!range_ || taken_.size() == range_->count) return {};
  while (!taken_.insert(next_).second) next_ = (next_ + 1) % range_->count;
  const auto group = plus(range_->first, next_);
  next_ = (next_ + 1) % range_->count;
  return group;
}

bool Groups::take(const Address& group) {
  const auto index = index_of(group);
  return index && taken_.insert(*index).second;
}

void Groups::release(const Address& group) {
  if (const auto index = index_of(group)) taken_.erase(*index);
}

}  // namespace nezha::flare
