#include "transport/tcp/socket.h"

#include "gtest/gtest.h"

namespace nezha::tcp {
namespace {

Address address_on(const char* text, unsigned interface) {
  Address address = *Address::parse(text);
  address.set_scope(interface);
  return address;
}

TEST(SocketAddress, LinkLocalOnesAreOfOneInterface) {
  EXPECT_EQ(address_on("[fe80::1]:80", 1), address_on("[fe80::1]:80", 1));
  EXPECT_FALSE(address_on("[fe80::1]:80", 1) == address_on("[fe80::1]:80", 2));
  EXPECT_EQ(address_on("[fd00::1]:80", 1), address_on("[fd00::1]:80", 2));
}

}  // namespace
}  // namespace nezha::tcp
