// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/engine/rank_message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nezha::flare::rank_message {
namespace {

TEST(RankMessageTest, SurvivesEncodingAndDecoding) {
  const std::vector<Message> all = {Join{1},          Joined{2, "no room"},
                                    Joined{3, ""},    Up{4},
                                    Down{5},          Order{6, 3, 0xffffffff, uint64_t{1} << 60},
                                    Keep{7, 2, 5, 9}, Started{8, 9, 10}};
  for (const Message& message : all) {
    const std::string bytes = encode(message);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
    const bool has_reason = std::holds_alternative<Joined>(message);
    EXPECT_FALSE(decode(bytes.substr(0, 4)).ok());
    EXPECT_EQ(decode(bytes + "x").ok(), has_reason);
  }
  EXPECT_EQ(std::get<Joined>(*decode(encode(all[1]))).why, "no room");
  const auto order = std::get<Order>(*decode(encode(all[5])));
  EXPECT_EQ(order.ordinal, uint64_t{1} << 60);
  const auto keep = std::get<Keep>(*decode(encode(all[6])));
  EXPECT_EQ(keep.stream, 2);
  EXPECT_EQ(keep.tag, 5);
}

TEST(RankMessageTest, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(decode("").ok());
  EXPECT_FALSE(decode(std::string("\x07\0\0\0\0", 5)).ok());
  EXPECT_FALSE(decode(std::string("\xff\0\0\0\0", 5)).ok());
}

}  // namespace
}  // namespace nezha::flare::rank_message
