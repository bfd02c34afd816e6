// SPDX-License-Identifier: Apache-2.0
#include "context/roster.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

// The records that the ranks have published.
struct Published final : Directory {
  absl::Status publish(int, const Record&) override { return absl::OkStatus(); }
  absl::Status confirm(int, const Record&) override { return absl::OkStatus(); }
  void refuse(int, absl::string_view) override {}
  absl::StatusOr<Record> read(int rank, Nanos, const std::function<absl::Status()>&) override {
    return records.at(static_cast<size_t>(rank));
  }

  std::vector<Record> records;
};

Record with_cores(const std::string& pool) {
  Record record;
  record.cores = pool;
  return record;
}

TEST(Roster, RanksMayShareTheCoresUnlessTheirRecordsSayOtherwise) {
  unsetenv("WORLD_SIZE");
  auto published = std::make_shared<Published>();
  published->records = {with_cores("a:0+8"), {}, with_cores("a:0+8"), with_cores("b:0+8")};
  ContextOptions options;
  options.rank = 0;
  options.size = 4;
  nezha::Setup setup(*Endpoint::create(), published, std::move(options), UniqueId::random());
  setup.cores = {8, "a:0+8"};
  Roster roster(setup, [] { return absl::OkStatus(); });
  const auto expect_ranks = [&](int ranks) {
    EXPECT_EQ(roster.core_share().ranks, ranks);
    EXPECT_EQ(roster.core_share().cores, 8);
  };
  expect_ranks(4);
  for (const int rank : {1, 2}) ASSERT_TRUE(roster.read(rank, now() + kSecond).ok());
  expect_ranks(4);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(roster.read(3, now() + kSecond).ok());
  expect_ranks(3);
  EXPECT_FALSE(roster.core_share().is_known);
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_WORLD_SIZE", "1", 1);
  expect_ranks(1);
  EXPECT_TRUE(roster.core_share().is_known);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}) unsetenv(name);
}

}  // namespace
}  // namespace nezha
