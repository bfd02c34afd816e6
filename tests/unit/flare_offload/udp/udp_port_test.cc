// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/udp/udp_port.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace {

bool cuts_trains = true;  // whether the sending device can segment trains

}  // namespace

// Replaces the C library's function. A kernel whose device cannot segment trains returns EIO; so
// does this function, because no test machine need have such a device.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  unsigned sendable = 0;
  while (sendable < count && (cuts_trains || messages[sendable].msg_hdr.msg_controllen == 0)) {
    ++sendable;
  }
  if (sendable == 0 && count > 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_sendmmsg, fd, messages, sendable, flags));
}

namespace nezha::flare {
namespace {

constexpr size_t kMost = 100;  // bytes per datagram

// A free port of the loopback device, or a member of a multicast group.
struct Port {
  explicit Port(UdpPort member) : udp(std::make_unique<UdpPort>(std::move(member))) {}
  explicit Port(const char* at = "127.0.0.1:1", size_t datagram = kMost) {
    Address any = *Address::parse(at);
    any.set_port(0);
    absl::StatusOr<UdpPort> opened = UdpPort::open(any, datagram);
    EXPECT_TRUE(opened.ok()) << opened.status();
    udp = std::make_unique<UdpPort>(*std::move(opened));
    address = *net::local_address(udp->fd());
  }
  void queue(const std::string& text, const std::vector<Address>& to) {
    std::memcpy(udp->buffer(), text.data(), text.size());
    udp->send(text.size(), to);
  }
  // Receives until there are `count` datagrams, or none arrives for 5 s.
  std::vector<std::string> receive(size_t count) {
    std::vector<std::string> texts;
    pollfd awaited = {udp->fd(), POLLIN, 0};
    while (texts.size() < count && poll(&awaited, 1, 5000) == 1) {
      udp->receive([&](absl::Span<const std::byte> datagram, const Address& from) {
        texts.emplace_back(reinterpret_cast<const char*>(datagram.data()), datagram.size());
        senders.push_back(from);
      });
    }
    return texts;
  }

  Address address;
  std::vector<Address> senders;  // of all datagrams
  std::unique_ptr<UdpPort> udp;
};

using Texts = std::vector<std::string>;

class UdpPortTest : public ::testing::TestWithParam<const char*> {};

TEST_P(UdpPortTest, SendsToEachAndReceives) {
  Port a(GetParam());
  Port b(GetParam());
  a.queue("one", {b.address});
  a.queue("", {b.address});
  a.queue("two", {a.address, b.address});
  EXPECT_EQ(a.udp->counters().sent, 0);
  a.udp->flush();
  EXPECT_EQ(b.receive(3), (Texts{"one", "", "two"}));
  EXPECT_TRUE(b.senders == std::vector<Address>(3, a.address));
  EXPECT_EQ(a.receive(1), Texts{"two"});
  EXPECT_EQ(a.udp->counters().sent, 4);
  EXPECT_EQ(a.udp->counters().not_sent, 0);
  EXPECT_EQ(b.udp->counters().received, 3);
  EXPECT_EQ(b.udp->receive([](auto, const auto&) { FAIL(); }), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, UdpPortTest, ::testing::Values("127.0.0.1:1", "[::1]:1"));

TEST(UdpPort, SendsMoreThanOneBatch) {
  Port a;
  Port b;
  Texts expected;
  for (int i = 0; i < 200; ++i) {
    expected.push_back(std::to_string(i));
    a.queue(expected.back(), {b.address});
  }
  a.udp->flush();
  EXPECT_EQ(b.receive(200), expected);
}

TEST(UdpPort, TrainsAreSplitIntoTheOriginalDatagrams) {
  Port a;
  Port b;
  Texts expected;
  for (const size_t size : {10, 10, 10, 5, 10, 20, 20, 0, 20, 20, 1, 1, 100, 100}) {
    expected.emplace_back(size, static_cast<char>('a' + expected.size()));
    a.queue(expected.back(), {b.address, a.address});
  }
  a.udp->flush();
  EXPECT_EQ(b.receive(expected.size()), expected);
  EXPECT_EQ(a.receive(expected.size()), expected);
  EXPECT_EQ(a.udp->counters().sent, 2 * expected.size());
  EXPECT_EQ(b.udp->counters().received, expected.size());
}

TEST(UdpPort, AllMembersOfAGroupGetWhatIsSentToItOnce) {
  Port a;
  ASSERT_TRUE(a.udp->reach_groups().ok());
  Address group = *Address::parse("239.192.7.7:1");
  group.set_port(a.address.port());
  Address other = *Address::parse("239.192.7.8:1");
  other.set_port(a.address.port());
  Port b(*UdpPort::join(group, "lo", kMost));
  Port c(*UdpPort::join(group, "lo", kMost));
  Port d(*UdpPort::join(other, "lo", kMost));
  const Texts expected = {"0123456789", "abcdefghij", "012"};
  a.queue("xyz", {other});
  for (const std::string& text : expected) a.queue(text, {group});
  a.udp->flush();
  EXPECT_EQ(b.receive(3), expected);
  EXPECT_EQ(c.receive(3), expected);
  EXPECT_TRUE(c.senders == std::vector<Address>(3, a.address));
  EXPECT_EQ(d.receive(1), Texts{"xyz"});
  EXPECT_EQ(a.udp->counters().sent, 4);
  for (Port* port : {&a, &b, &c, &d}) {
    EXPECT_EQ(port->udp->receive([](auto, const auto&) { FAIL(); }), 0);
  }
}

TEST(UdpPort, SaysWhereItCannotJoinAGroup) {
  const Address group = *Address::parse("239.192.7.7:17208");
  EXPECT_FALSE(UdpPort::join(group, "no-such-if", kMost).ok());
  const auto joined = UdpPort::join(*Address::parse("127.0.0.1:17208"), "lo", kMost);
  EXPECT_EQ(joined.status().message(), "joining the group 127.0.0.1:17208 on lo: Invalid argument");
}

TEST(UdpPort, SendsSinglyWhereNoTrainsCanBeSent) {
  Port a;
  Port b;
  Texts expected;
  cuts_trains = false;
  for (const size_t size : {7, 20, 20, 20, 5, 100}) {
    expected.emplace_back(size, static_cast<char>('a' + expected.size()));
    a.queue(expected.back(), {b.address, a.address});
  }
  a.udp->flush();
  EXPECT_EQ(a.udp->counters().sent, 2 * expected.size());
  a.queue("next", {b.address});
  a.queue("last", {b.address});
  a.udp->flush();
  cuts_trains = true;
  EXPECT_EQ(a.receive(expected.size()), expected);
  expected.insert(expected.end(), {"next", "last"});
  EXPECT_EQ(b.receive(expected.size()), expected);
  EXPECT_EQ(a.udp->counters().not_sent, 0);
}

TEST(UdpPort, LeavesOutWhatIsTooLong) {
  Port a;
  Port wide("127.0.0.1:1", kMost + 1);
  const std::string longest(kMost, 'y');
  wide.queue(longest + "x", {a.address});
  wide.queue(longest, {a.address});
  wide.udp->flush();
  EXPECT_EQ(a.receive(1), Texts{longest});
  EXPECT_EQ(a.udp->counters().received, 2);
}

TEST(UdpPort, GoesOnAfterWhatCannotBeSent) {
  Port a;
  Port b;
  a.queue("lost", {*Address::parse("[::1]:7100")});  // from an IPv4 socket
  a.queue("sent", {b.address});
  a.udp->flush();
  EXPECT_EQ(b.receive(1), Texts{"sent"});
  EXPECT_EQ(a.udp->counters().not_sent, 1);
}

TEST(UdpPort, TheErrorNamesAnAddressThatCannotBeBound) {
  const auto opened = UdpPort::open(*Address::parse("192.0.2.1:17208"), kMost);
  EXPECT_NE(opened.status().message().find("binding a UDP socket to 192.0.2.1:17208"),
            std::string::npos);
}

TEST(PathMtu, IsKnownForTheLoopbackDevice) {
  const auto mtu = path_mtu(*Address::parse("127.0.0.1:7100"));
  ASSERT_TRUE(mtu.ok()) << mtu.status();
  EXPECT_GE(*mtu, 1500);
  EXPECT_EQ(path_mtu(*Address::parse("127.0.0.1:7100"), "lo").value_or(0), *mtu);
  EXPECT_FALSE(path_mtu(*Address::parse("127.0.0.1:7100"), "no-such-if").ok());
}

}  // namespace
}  // namespace nezha::flare
