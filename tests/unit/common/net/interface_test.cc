// SPDX-License-Identifier: Apache-2.0
// Which of an interface's addresses a rail uses, and what the kernel reports for loopback.
#include "common/net/interface.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace nezha::net {
namespace {

AssignedAddress assigned(const char* text) {
  AssignedAddress it;
  it.address = *Address::parse_host(text);
  it.prefix = it.address.family() == AF_INET ? 16 : 64;
  return it;
}

AssignedAddress with(const char* text, bool AssignedAddress::*what) {
  AssignedAddress it = assigned(text);
  it.*what = true;
  return it;
}

std::string choice(const std::vector<AssignedAddress>& addresses, const AddressWish& wish = {}) {
  const auto chosen = choose_address("eth0", addresses, wish);
  return chosen.ok() ? chosen->host() : std::string(chosen.status().message());
}

TEST(ChooseAddress, TakesIPv4BeforeIPv6BeforeLinkLocal) {
  const std::vector<AssignedAddress> all{assigned("fe80::1"), assigned("fd00::1"),
                                         assigned("10.0.0.1"), assigned("10.0.0.2")};
  EXPECT_EQ(choice(all), "10.0.0.1") << "the first of several equal ones";
  EXPECT_EQ(choice(all, {.family = AF_INET6}), "fd00::1");
  EXPECT_EQ(choice({all[0]}), "fe80::1");
  EXPECT_EQ(choice(all, {.named = "10.0.0.2"}), "10.0.0.2");
}

TEST(ChooseAddress, PrefersPermanentToTemporaryToDeprecatedAddresses) {
  const auto deprecated = with("fd00::1", &AssignedAddress::is_deprecated);
  const auto passing = with("fd00::2", &AssignedAddress::is_passing);
  EXPECT_EQ(choice({deprecated, passing, assigned("fd00::3")}), "fd00::3");
  EXPECT_EQ(choice({deprecated, passing}), "fd00::2");
  EXPECT_EQ(choice({deprecated}), "fd00::1");
  EXPECT_EQ(choice({with("10.0.0.1", &AssignedAddress::is_deprecated), assigned("fd00::3")}),
            "10.0.0.1");
}

TEST(ChooseAddress, NeverTakesDuplicateOrTentativeAddresses) {
  const auto duplicate = with("fd00::1", &AssignedAddress::is_duplicate);
  const auto tentative = with("fd00::2", &AssignedAddress::is_tentative);
  EXPECT_EQ(choice({duplicate, assigned("fe80::1")}), "fe80::1");
  EXPECT_EQ(choice({duplicate, tentative, assigned("fd00::3")}), "fd00::3");
  const auto later = choose_address("eth0", {duplicate, tentative}, {});
  EXPECT_TRUE(absl::IsUnavailable(later.status())) << later.status();
  const auto better = choose_address("eth0", {tentative, assigned("fe80::1")}, {});
  EXPECT_TRUE(absl::IsUnavailable(better.status())) << "a link-local address would be of no use";
  const auto never = choose_address("eth0", {duplicate}, {});
  EXPECT_TRUE(absl::IsNotFound(never.status())) << never.status();
  EXPECT_TRUE(absl::StrContains(never.status().message(), "fd00::1/64 (duplicate"))
      << never.status();
  EXPECT_TRUE(absl::IsNotFound(choose_address("eth0", {}, {}).status()));
  EXPECT_TRUE(
      absl::IsUnavailable(choose_address("eth0", {tentative}, {.named = "fd00::2"}).status()));
}

TEST(ChooseAddress, AMissingAddressIsAnErrorThatListsTheOthers) {
  const auto chosen =
      choose_address("eth0", {assigned("10.0.0.1"), assigned("fd00::1")}, {.named = "10.0.0.9"});
  EXPECT_TRUE(absl::IsNotFound(chosen.status()));
  for (const char* part : {"10.0.0.9", "eth0", "10.0.0.1/16", "fd00::1/64"}) {
    EXPECT_TRUE(absl::StrContains(chosen.status().message(), part)) << chosen.status();
  }
}

TEST(LookAt, KnowsLoopbackAndThatAnotherIsNotThere) {
  auto netlink = Netlink::open();
  ASSERT_TRUE(netlink.ok()) << netlink.status();
  const auto lo = look_at("lo", *netlink);
  ASSERT_TRUE(lo.ok()) << lo.status();
  EXPECT_GT(lo->index, 0);
  EXPECT_TRUE(lo->is_running);
  EXPECT_EQ(choice(lo->addresses), "127.0.0.1");
  const auto none = look_at("no-such-if", *netlink);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->index, 0);
  EXPECT_EQ(look_at("a-name-that-is-too-long-for-one", *netlink)->index, 0);
  EXPECT_EQ(look_at("lo", *netlink)->index, lo->index)
      << "a failed query does not affect later ones";
}

}  // namespace
}  // namespace nezha::net
