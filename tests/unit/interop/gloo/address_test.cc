// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/address.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace nezha::interop {
namespace {

constexpr size_t kBytes = ::gloo::transport::Address::kMaxByteSize;

Record record(int rails, const std::string& address = "10.0.0.1:40000") {
  Record record;
  record.process = UniqueId::random();
  record.settings = "plan=auto";
  for (int i = 0; i < rails; ++i) record.devices[absl::StrCat("rail", i)] = address;
  return record;
}

std::vector<char> bytes_of(std::string text) {
  text.resize(kBytes, ' ');
  return {text.begin(), text.end()};
}

TEST(Address, APeerReadsWhatARankWrites) {
  Record own = record(2);
  own.interfaces["rail1"] = "eth1";
  const auto address = Address::of(own);
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->bytes().size(), kBytes);
  const auto read = Address::parse(address->bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->process(), own.process);
  EXPECT_EQ(read->record().devices, own.devices);
  EXPECT_EQ(read->record().interfaces, own.interfaces);
  EXPECT_TRUE(read->is_complete());
  EXPECT_TRUE(read->agrees_with(*address));
}

// Gloo's ContextFactory splits what it receives by the length of its own address.
TEST(Address, AllAreEquallyLong) {
  EXPECT_EQ(Address::of(record(1))->bytes().size(), Address::of(record(16))->bytes().size());
}

TEST(Address, SaysThatThereAreMoreRailsThanItHasRoomFor) {
  const Record own = record(16);
  const auto address = Address::of(own);
  ASSERT_TRUE(address.ok());
  EXPECT_FALSE(address->is_complete());
  const auto read = Address::parse(address->bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->is_complete());
  EXPECT_GT(read->record().devices.size(), 1u);
  for (const auto& [rail, at] : read->record().devices) EXPECT_EQ(own.devices.at(rail), at);
}

TEST(Address, HasRoomForARailWithALongNameAndAddress) {
  Record own;
  own.process = UniqueId::random();
  own.devices[std::string(31, 'r')] = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
  own.interfaces[std::string(31, 'r')] = std::string(15, 'e');
  const auto read = Address::parse(Address::of(own)->bytes());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->record().devices, own.devices);
}

TEST(Address, RefusesIfNoRailFits) {
  const auto address = Address::of(record(1, std::string(kBytes, '1')));
  EXPECT_TRUE(absl::IsResourceExhausted(address.status()));
  EXPECT_TRUE(absl::StrContains(address.status().message(), "?rail=NAME"));
}

TEST(Address, TellsSettingsThatDiffer) {
  Record other = record(1);
  other.settings = "plan=slice";
  EXPECT_FALSE(Address::of(record(1))->agrees_with(*Address::of(other)));
}

TEST(Address, RefusesWhatIsNotNezhas) {
  const std::string process = UniqueId::random().str();
  for (const std::string& text :
       {std::string(), std::string("tcp"), absl::StrCat("nezha1 ", process),
        absl::StrCat("nezha1 ", process, " 00000000"),
        absl::StrCat("nezha1 ", process, " 00000000 eth0 -"),
        absl::StrCat("nezha1 ", process, " 00000000 eth0 - "),
        absl::StrCat("nezha1 ", process, "0 00000000 eth0 - 10.0.0.1:1"),
        absl::StrCat("nezha2 ", process, " 00000000 eth0 - 10.0.0.1:1"), std::string("nezha1 +")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Address::parse(bytes_of(text)).status())) << text;
  }
  EXPECT_FALSE(Address::parse({}).ok());
  EXPECT_FALSE(Address::parse(std::vector<char>(kBytes, '\0')).ok());
}

}  // namespace
}  // namespace nezha::interop
