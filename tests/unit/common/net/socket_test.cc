// SPDX-License-Identifier: Apache-2.0
#include "common/net/socket.h"

#include "gtest/gtest.h"

namespace nezha::net {
namespace {

Address address_on(const char* text, unsigned interface) {
  Address address = *Address::parse(text);
  address.set_scope(interface);
  return address;
}

TEST(SocketAddress, LinkLocalAddressesDifferByInterface) {
  EXPECT_EQ(address_on("[fe80::1]:80", 1), address_on("[fe80::1]:80", 1));
  EXPECT_FALSE(address_on("[fe80::1]:80", 1) == address_on("[fe80::1]:80", 2));
  EXPECT_EQ(address_on("[fd00::1]:80", 1), address_on("[fd00::1]:80", 2));
}

TEST(Address, KnowsMulticast) {
  for (const char* text : {"224.0.0.1:1", "239.255.255.255:1", "[ff02::1]:1"}) {
    EXPECT_TRUE(Address::parse(text)->is_multicast()) << text;
  }
  for (const char* text : {"223.255.255.255:1", "240.0.0.0:1", "[fe80::1]:1"}) {
    EXPECT_FALSE(Address::parse(text)->is_multicast()) << text;
  }
}

}  // namespace
}  // namespace nezha::net
