// SPDX-License-Identifier: Apache-2.0
#include "control/table_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/programs/lane_simulator.h"
#include "control/load_balancer.h"
#include "control/model_policy.h"
#include "gtest/gtest.h"
#include "tests/unit/control/simulated_networks.h"

namespace nezha {
namespace {

DataLengthTable learned() {
  ModelPolicy* policy = nullptr;
  SimulatedJob job({megabits(1000), megabits(400)}, policy);
  job.run(8 * kMiB, 60);
  job.run(64, 60);
  DataLengthTable table = job.balancer().table();
  table.entries.begin()->second.algorithm = Algorithm::kRecursiveDoubling;
  table.entries.rbegin()->second.algorithm = Algorithm::kHalvingDoubling;
  return table;
}

class TableFile : public testing::Test {
 protected:
  TableFile() {
    std::string name = testing::TempDir() + "table.XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~TableFile() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(TableFile, IsReadBackAsItWasSaved) {
  const DataLengthTable saved = learned();
  const std::string path = directory_ + "/table";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(save_table(saved, path).ok());
  const auto loaded = load_table(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->lanes, saved.lanes);
  ASSERT_EQ(loaded->entries.size(), 2);
  for (const auto& [size_class, entry] : saved.entries) {
    const TableEntry& again = loaded->entries.at(size_class);
    EXPECT_EQ(again.state, entry.state);
    EXPECT_EQ(again.allocation, entry.allocation);
    EXPECT_EQ(again.algorithm, entry.algorithm);
    EXPECT_EQ(again.bytes, entry.bytes);
    EXPECT_EQ(again.ran_by, entry.ran_by);
    EXPECT_EQ(again.times, entry.times);
    EXPECT_EQ(again.windows, entry.windows);
    EXPECT_EQ(again.changes, entry.changes);
    EXPECT_EQ(again.history, entry.history);
    const std::string history = loaded->history(size_class);
    EXPECT_EQ(history.rfind("in an earlier run, after ", 0), 0) << history;
  }
  EXPECT_EQ(format_table(*loaded), format_table(saved));
  EXPECT_NE(format_table(saved).find("\nalgorithm recursive doubling\n"), std::string::npos);
  EXPECT_NE(format_table(saved).find("\nalgorithm halving-doubling\n"), std::string::npos);
}

TEST_F(TableFile, IsReplacedAsAWhole) {
  const std::string path = directory_ + "/table";
  ASSERT_TRUE(save_table(learned(), path).ok());
  std::ifstream old(path);  // a reader opens the file before it is replaced
  ASSERT_TRUE(save_table({{"only"}, {}}, path).ok());
  std::string text(std::istreambuf_iterator<char>(old), {});
  EXPECT_EQ(text, format_table(learned()));
  EXPECT_EQ(load_table(path)->lanes, std::vector<std::string>{"only"});
  const auto files = std::filesystem::directory_iterator(directory_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing is left behind";
}

TEST_F(TableFile, FailuresToSaveLeaveTheOldOne) {
  const std::string path = directory_ + "/none/table";
  const absl::Status saved = save_table(learned(), path);
  EXPECT_FALSE(saved.ok());
  EXPECT_NE(saved.message().find(path), std::string::npos) << saved;
  EXPECT_FALSE(load_table(path).ok());
}

TEST(ParseTable, RefusesWhatIsTooShort) {
  const std::string text = format_table(learned());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(parse_table(text.substr(0, length), "t").ok()) << length;
  }
  EXPECT_FALSE(parse_table(text + "\n", "t").ok());
  EXPECT_FALSE(parse_table(text + "end\n", "t").ok());
}

// If the text with a byte changed is accepted, it is exactly what format_table() writes for another
// table.
TEST(ParseTable, ChecksEveryByte) {
  const std::string text = format_table(learned());
  size_t refused = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\0', '\n', ' ', '0', '7', '-', 'x', '\xff'}) {
      std::string changed = text;
      changed[at] = byte;
      const auto table = parse_table(changed, "t");
      if (table.ok()) {
        EXPECT_EQ(format_table(*table), changed);
      } else {
        ++refused;
        EXPECT_NE(table.status().message().find("line "), std::string::npos) << table.status();
      }
    }
  }
  EXPECT_GT(refused, text.size() * 6);
}

TEST(ParseTable, NamesTheLineAndWhatIsWrong) {
  const std::string head =
      "nezha data length table 1\nlanes 2\nlane a\nlane b\nclass 10\nstate cold\n";
  const std::string body =
      "windows 3\nbytes 1024\nran-by 1048576 0\ntimes 9 0\nchanges 1\n"
      "change 0 start 1048576 0\nend\n";
  ASSERT_TRUE(parse_table(head + "parts 1048576 0\n" + body, "t").ok());
  const auto refused = [](const std::string& text, const char* why) {
    const auto table = parse_table(text, "/a/table");
    ASSERT_FALSE(table.ok());
    EXPECT_EQ(table.status().message(), absl::StrCat("/a/table is no data length table: ", why));
  };
  refused(head + "parts 1048576 1\n" + body,
          "line 7 has parts that add up to 1048577, not 1048576");
  refused(head + "parts 1048576\n" + body, "line 7 is not of 2 lanes");
  refused(head + "parts 1048576 -0\n" + body,
          "line 7 has '-0' where a number of at most 1048576 belongs");
  refused(head + "part 1048576 0\n" + body, "line 7 does not begin with 'parts'");
  refused("nezha data length table 2\n", "line 1 is not 'nezha data length table 1'");
  refused(head + "parts 1048576 0\nwindows 3\nbytes 1023\n", "line 9 has a size of another class");
  refused(head + "parts 1048576 0\n", "line 8 is missing");
}

TEST(ParseTable, LaneNamesMayHoldAnything) {
  const DataLengthTable table{{"tcp:eth0?rail=a b", "line\nend", "\xff\"\\"}, {}};
  const auto again = parse_table(format_table(table), "t");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->lanes, table.lanes);
}

}  // namespace
}  // namespace nezha
