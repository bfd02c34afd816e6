// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/wire/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nezha::flare::message {
namespace {

const Request kRequest{*UniqueId::parse("0123456789abcdef0123456789abcdef"), 3};

TEST(MessagesTest, SurvivesEncodingAndDecoding) {
  const Address address = *Address::parse("10.0.0.1:7200");
  const Address v6 = *Address::parse("[fd00::1]:7200");
  const Address group = *Address::parse("239.192.0.1:7200");
  const Address v6_group = *Address::parse("[ff18::1]:7200");
  Key key{};
  key[0] = std::byte{0xab};
  const std::vector<Message> all = {
      Join{kRequest, 1, 4, address, 1440, 32, 4, true, false},
      Renew{kRequest, 1, 4, 77, 4, {}},
      Leave{kRequest, 1},
      Granted{kRequest, 77, 4, 9, key, v6, 63, 32, 1440, 10 * kSecond, v6_group},
      Rejected{kRequest, "s1 is full: wait"},
      Lost{kRequest, "s1 has started again"},
      Install{4, kSecond, "session 7\nchild 10.0.0.1:1 0\n"},
      Extend{kSecond, {1, 2}},
      Remove{{}},
      Has{1 << 20, {}},
      Has{1 << 20, {5, 4294967295}},
      Installed{77},
      Refused{77, "no room"},
      Expired{{1}},
      Join{kRequest, 1, 4, address, 1440, 32, 4, false, true},
      Renew{kRequest, 1, 4, 77, 4, group},
      Granted{kRequest, 77, 4, 9, key, v6, 63, 32, 1440, 10 * kSecond, {}},
  };
  for (const Message& message : all) {
    const std::string text = encode(message);
    const auto back = parse(text);
    ASSERT_TRUE(back.ok()) << text;
    EXPECT_EQ(back->index(), message.index()) << text;
    EXPECT_EQ(encode(*back), text);
  }
  const auto granted = std::get<Granted>(*parse(encode(all[3])));
  EXPECT_EQ(granted.key, key);
  EXPECT_EQ(granted.address, v6);
  EXPECT_EQ(granted.lease, 10 * kSecond);
  EXPECT_EQ(granted.group, v6_group);
  EXPECT_FALSE(std::get<Join>(*parse(encode(all[0]))).reproducible);
  EXPECT_TRUE(std::get<Join>(*parse(encode(all[14]))).reproducible);
  EXPECT_EQ(std::get<Renew>(*parse(encode(all[15]))).group, group);
}

TEST(MessagesTest, ReasonsStayOnTheirLine) {
  const std::string text = encode(Rejected{kRequest, "a\nremove 1"});
  EXPECT_EQ(std::get<Rejected>(*parse(text)).reason, "a remove 1");
}

TEST(MessagesTest, RefusesWhatMakesNoSense) {
  const std::string job = kRequest.job.str();
  const std::vector<std::string> bad = {
      "",
      "hello",
      "join",
      "join " + job + " 1 0 4 10.0.0.1:7200 1440 32 4 1",       // no "reproducible"
      "join " + job + " 1 0 4 10.0.0.1:7200 1440 32 4 2 0",     // neither yes nor no
      "join " + job + " 1 0 4 10.0.0.1:7200 1440 32 4 1 2",     // neither yes nor no
      "join " + job + " 1 0 4 10.0.0.1:7200 1440 32 4 1 0 4",   // too many words
      "join " + job + " 1 4 4 10.0.0.1:7200 1440 32 4 1 0",     // no such rank
      "join " + job + " 1 0 5000 10.0.0.1:7200 1440 32 4 1 0",  // too many ranks
      "join " + job + " 1 0 4 10.0.0.1 1440 32 4 1 0",          // no port
      "join " + job + " 1 0 4 10.0.0.1:7200 9000000 32 4 1 0",  // too long
      "join " + job + " 1 0 4 10.0.0.1:7200 1440 32 17 1 0",    // too many streams
      "join " + job + " -1 0 4 10.0.0.1:7200 1440 32 4 1 0",
      "join xyz 1 0 4 10.0.0.1:7200 1440 32 4 1 0",
      "renew " + job + " 1 0 4 77 4",                // neither a group nor "no group"
      "renew " + job + " 1 0 4 77 4 10.0.0.1:7200",  // the address is no group
      "renew " + job + " 1 0 4 77 4 239.192.0.1",
      "leave " + job + " 1",
      "extend 0 1",
      "extend 99999999999999 1",
      "remove 1 x",
      "remove 4294967296",
      "installed 1 2",
      "install 0 10\nsession 1",
  };
  for (const std::string& text : bad) EXPECT_FALSE(parse(text).ok()) << text;
}

}  // namespace
}  // namespace nezha::flare::message
