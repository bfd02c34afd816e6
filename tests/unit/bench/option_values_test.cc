// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/option_values.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace nezha::bench {
namespace {

using Counts = std::vector<size_t>;
using Numbers = std::vector<double>;
using Names = std::vector<std::string>;

std::string reason(const std::function<void()>& convert) {
  try {
    convert();
  } catch (const BadValue& error) {
    return error.what();
  }
  return "none";
}

TEST(OptionValues, ANumberIsWholeAndInItsRange) {
  EXPECT_EQ(to_number("7", 7, 9), 7);
  EXPECT_EQ(reason([] { to_number("6", 7); }), "not a whole number of at least 7");
  EXPECT_EQ(reason([] { to_number("10", 7, 9); }),
            "not a whole number of at least 7 and at most 9");
  EXPECT_EQ(reason([] { to_number("7x", 7); }), "not a whole number of at least 7");
}

TEST(OptionValues, NumbersArePositiveOrZero) {
  EXPECT_EQ(to_numbers("1,0.4", false), Numbers({1, 0.4}));
  EXPECT_EQ(to_numbers("0,7e1", true), Numbers({0, 70}));
  EXPECT_EQ(reason([] { to_numbers("1,0", false); }), "'0' is not a positive number");
  EXPECT_EQ(reason([] { to_numbers("1,-1", true); }), "'-1' is not a number of 0 or more");
  EXPECT_EQ(reason([] { to_numbers("inf", true); }), "'inf' is not a number of 0 or more");
}

TEST(OptionValues, CountsHaveUnits) {
  EXPECT_EQ(to_counts("65536,64K,64ki,1M,2g"),
            Counts({65536, 65536, 65536, size_t{1} << 20, size_t{2} << 30}));
  EXPECT_EQ(to_counts("1024G"), Counts({size_t{1} << 40}));
  for (const auto* bad : {"", "0", "-1", "4i", "1T", "K", "1025G", "1,,2", "1.5K"}) {
    EXPECT_NE(reason([&] { to_counts(bad); }).find("' is not a whole number from 1 to 1024G"),
              std::string::npos)
        << bad;
  }
}

TEST(OptionValues, ADurationIsPositiveAndAtMostADay) {
  EXPECT_EQ(to_duration("1m30s"), absl::Seconds(90));
  EXPECT_EQ(to_duration("24h"), absl::Hours(24));
  EXPECT_EQ(reason([] { to_duration("2"); }), "not a duration, such as 500ms or 2s");
  EXPECT_EQ(reason([] { to_duration("0s"); }), "a duration must be positive");
  EXPECT_EQ(reason([] { to_duration("24h1ns"); }), "a duration is at most a day, 24h");
}

TEST(OptionValues, NoNameBeginsWithADigit) {
  EXPECT_EQ(to_names("tcp:eth0?cpus=0-3,8,tcp:eth1"), Names({"tcp:eth0?cpus=0-3,8", "tcp:eth1"}));
  EXPECT_EQ(reason([] { to_names("tcp:eth0,"); }), "an empty name");
}

TEST(OptionValues, PortsAreARange) {
  EXPECT_EQ(to_ports("20000-20100"), "20000-20100");
  for (const auto* bad : {"", "20000", "9-8", "0-1", "1-65536"}) {
    EXPECT_EQ(reason([&] { to_ports(bad); }),
              "not a range of ports such as 20000-20100, from 1 to 65535")
        << bad;
  }
}

TEST(OptionValues, ANameIsOneOfTheKnownOnes) {
  EXPECT_EQ(one_of("csv", {"json", "csv"}), "csv");
  EXPECT_EQ(reason([] {
              one_of("jsn", {"json", "csv"});
            }),
            "unknown; did you mean 'json'? (there are json, csv)");
  EXPECT_EQ(reason([] { one_of("pdf", {"json", "csv"}); }), "unknown (there are json, csv)");
}

}  // namespace
}  // namespace nezha::bench
