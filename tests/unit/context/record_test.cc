// SPDX-License-Identifier: Apache-2.0
#include "context/record.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace nezha {
namespace {

Record some_record() {
  Record record;
  record.job = {1, 2};
  record.process = {3, 4};
  record.publication = {5, 6};
  record.host = "node-7";
  record.cores = "6f1c:0+8";
  record.pid = 1234;
  record.size = 16;
  record.settings = "plan=slice shares=1000,400";
  record.devices = {{"blue", "10.0.0.1:4000"}, {"red", "[fd00::1]:4001"}};
  record.interfaces = {{"red", "eth1"}};
  return record;
}

TEST(Record, IsText) {
  EXPECT_EQ(some_record().encode(),
            "nezha 1\n"
            "job 00000000000000010000000000000002\n"
            "process 00000000000000030000000000000004\n"
            "publication 00000000000000050000000000000006\n"
            "host node-7\n"
            "pid 1234\n"
            "size 16\n"
            "settings plan=slice shares=1000,400\n"
            "cores 6f1c:0+8\n"
            "device blue 10.0.0.1:4000\n"
            "device red [fd00::1]:4001\n"
            "interface red eth1\n"
            "end\n");
  EXPECT_EQ(Record::key(12), "rank12");
}

TEST(Record, ComesBack) {
  const auto record = Record::decode(some_record().encode());
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->job, some_record().job);
  EXPECT_EQ(record->process, some_record().process);
  EXPECT_EQ(record->publication, some_record().publication);
  EXPECT_EQ(record->host, "node-7");
  EXPECT_EQ(record->cores, "6f1c:0+8");
  EXPECT_EQ(record->pid, 1234);
  EXPECT_EQ(record->size, 16);
  EXPECT_EQ(record->settings, some_record().settings);
  EXPECT_EQ(record->devices, some_record().devices);
  EXPECT_EQ(record->interfaces, some_record().interfaces);
}

TEST(Record, TellsWhichRailsTheSelectorChose) {
  Record record = some_record();
  record.interfaces["green"] = "eth9";  // the record has no device of this rail
  const ChosenInterfaces rails{{"blue", ""}, {"red", "eth1"}};
  EXPECT_EQ(record.rails(), rails);
}

TEST(Record, OthersAreRefused) {
  const std::string good = some_record().encode();
  EXPECT_TRUE(absl::IsFailedPrecondition(Record::decode("nezha 2\n" + good.substr(8)).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Record::decode("hello").status()));
  EXPECT_FALSE(Record::decode("").ok());
  EXPECT_FALSE(Record::decode("nezha 1\nend\n").ok()) << "it names no process";
  const std::string unended = good.substr(0, good.size() - std::string("end\n").size());
  EXPECT_TRUE(absl::IsInvalidArgument(Record::decode(unended).status()));
  for (const std::string line :
       {"device blue", "device  10.0.0.1:4", "interface red",
        "device 12345678901234567890123456789012 10.0.0.1:4", "colour red", "pid -1", "pid x",
        "size 99999999999", "job 12", "process 0000000000000003000000000000000g"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Record::decode(unended + line + "\nend\n").status()))
        << line;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Record::decode(good + std::string(20'000, '\n')).status()));
}

TEST(Record, IgnoresTheRestOfALongerOne) {
  const auto record = Record::decode(some_record().encode() + "h1\nend\n");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->encode(), some_record().encode());
}

TEST(Record, GarbledOnesAreRefusedOrMakeSense) {
  std::mt19937_64 random(8);
  const std::string good = some_record().encode();
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (uint64_t i = random() % 4; i > 0 && !text.empty(); --i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto record = Record::decode(text);
    if (!record.ok()) {
      ++refused;
      continue;
    }
    EXPECT_NE(record->process, UniqueId());
    EXPECT_GE(record->pid, 0);
    EXPECT_GE(record->size, 0);
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace nezha
