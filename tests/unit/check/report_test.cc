// SPDX-License-Identifier: Apache-2.0
#include "check/report.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/unit/check/evidence.h"

namespace nezha::check {
namespace {

using testing::all_is_well;

std::vector<std::string> lines(const Evidence& evidence) {
  return absl::StrSplit(text_report(evidence, diagnose(evidence)), '\n');
}

size_t lines_with(const std::vector<std::string>& lines, const std::string& begin) {
  size_t count = 0;
  for (const std::string& line : lines) count += absl::StartsWith(line, begin) ? 1 : 0;
  return count;
}

TEST(Report, HasOneLineForARailThatIsWell) {
  const auto all = lines(all_is_well(8, 2));
  EXPECT_EQ(lines_with(all, "eth0  all 28 pairs  both ways  100"), 1u);
  EXPECT_EQ(lines_with(all, "eth"), 2u);
  EXPECT_EQ(lines_with(all, "nezha-check: all is well"), 1u);
}

TEST(Report, SaysThatNothingWasMeasuredOnOneHost) {
  Evidence evidence = all_is_well(3, 1);
  for (RankFacts& facts : evidence.ranks) facts.host = facts.namespace_id = "a";
  evidence.paths.clear();
  const auto all = lines(evidence);
  EXPECT_EQ(lines_with(all, "nezha-check: nothing is known to be wrong, and nothing was measured"),
            1u);
  const std::string json = json_report(evidence, diagnose(evidence));
  EXPECT_TRUE(absl::StrContains(json, R"("well":true,"measured":false)")) << json;
}

TEST(Report, ShowsTheWorstValuesOfAHealthyRail) {
  Evidence evidence = all_is_well(3, 1);
  testing::path(evidence, 0, 2, 0).round_trip_us = 321;
  testing::path(evidence, 1, 2, 0).gbps_back = 8.25;
  const auto all = lines(evidence);
  EXPECT_EQ(lines_with(all, "eth0  all 3 pairs  both ways  321              9.4 / 8.25"), 1u)
      << all[1];
}

TEST(Report, ShowsThePairsThatAreNotWell) {
  Evidence evidence = all_is_well(4, 1);
  testing::fail(evidence, 0, 1, 0, Outcome::kRefused);
  testing::lose(evidence, 1, 2, 0, 1000, 1500);
  const auto all = lines(evidence);
  EXPECT_EQ(lines_with(all, "eth0  other 4 pairs"), 1u);
  EXPECT_EQ(lines_with(all, "eth0  0 (node0) - 1 (node1)  back only"), 1u);
  EXPECT_EQ(lines_with(all, "eth0  1 (node1) - 2 (node2)  both ways"), 1u);
  EXPECT_EQ(lines_with(all, "nezha-check: 2 faults"), 1u);
}

TEST(Report, ExpectsMeasurementsOfOneRankOfEachHost) {
  Evidence evidence = all_is_well(4, 1);
  for (size_t rank = 0; rank < 4; ++rank) {
    evidence.ranks[rank].host = evidence.ranks[rank].namespace_id = rank < 2 ? "a" : "b";
  }
  std::erase_if(evidence.paths, [](const Path& path) { return path.from != 0 || path.to != 2; });
  EXPECT_EQ(lines_with(lines(evidence), "eth0  all 6 pairs  both ways  100"), 1u);
  evidence.paths.clear();
  EXPECT_EQ(lines_with(lines(evidence), "eth0  0 (a) - 2 (b)  both ways  -"), 1u);
}

TEST(Report, QuotesForJson) {
  Evidence evidence = all_is_well(2, 1);
  evidence.ranks[0].host = "a\"b\\c\x01";
  const std::string json = json_report(evidence, diagnose(evidence));
  EXPECT_TRUE(absl::StrContains(json, R"("host":"a\"b\\c\u0001")")) << json;
  EXPECT_TRUE(absl::StrContains(json, R"("well":true)")) << json;
}

TEST(Report, HasNullForWhatWasNotMeasured) {
  Evidence evidence = all_is_well(2, 1);
  testing::path(evidence, 0, 1, 0).gbps_there = Path::kUnknown;
  const std::string json = json_report(evidence, {});
  EXPECT_TRUE(absl::StrContains(json, R"("gbps_there":null)")) << json;
}

}  // namespace
}  // namespace nezha::check
