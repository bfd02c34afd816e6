// SPDX-License-Identifier: Apache-2.0
#include "flare_offload/core/slot_table.h"

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace nezha::flare {
namespace {

using Values = std::vector<int32_t>;

absl::Span<const std::byte> bytes_of(const Values& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(int32_t)};
}

// Writes down what the table sends: "up 3:5,6" is block 3 with elements 5 and 6.
class Recorder final : public Outlet {
 public:
  void to_parent(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    record("up", header, payload);
  }
  void to_child(int child, const FrameHeader& header,
                absl::Span<const std::byte> payload) override {
    record(absl::StrCat("child ", child), header, payload);
  }
  void to_children(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    record("all", header, payload);
  }

  std::string take() { return std::exchange(text_, {}); }
  std::vector<uint16_t> take_numbers() { return std::exchange(numbers_, {}); }

 private:
  void record(std::string to, const FrameHeader& header, absl::Span<const std::byte> payload) {
    const BlockId& block = header.block;
    numbers_.push_back(header.number);
    std::string what;
    if (header.type == FrameType::kPending) {
      what = absl::StrJoin(decode_ranges(payload), ",", [](std::string* out, RankRange range) {
        absl::StrAppend(out, range.first, "+", range.count);
      });
      to += " pending";
    } else if (header.type == FrameType::kMismatch) {
      const Mismatch mismatch = decode_mismatch({header, payload});
      what = absl::StrCat(mismatch.length, " bytes of operation ", block.operation_id, " from ",
                          mismatch.ranks.first, ", ", mismatch.other_length, " of ",
                          mismatch.other.operation_id, " from ", mismatch.other_ranks.first);
      to += " mismatch";
    } else if (header.type == FrameType::kLost) {
      const NumberRange lost = decode_lost(payload);
      what = absl::StrCat(lost.first, "+", lost.count);
      to += " lost";
    } else {
      Values values(payload.size() / sizeof(int32_t));
      if (!values.empty()) std::memcpy(values.data(), payload.data(), payload.size());
      what = absl::StrJoin(values, ",");
    }
    absl::StrAppend(&text_, text_.empty() ? "" : "; ", to, " ", block.seq, ":", what);
  }

  std::string text_;
  std::vector<uint16_t> numbers_;
};

class SlotTableTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kWindow = 2;

  explicit SlotTableTest(bool is_root = true, uint32_t first_seq = 0)
      : table_({.window = kWindow,
                .first_seq = first_seq,
                .children = {{0, 1}, {1, 2}, {3, 1}},
                .is_root = is_root,
                .payload = 64},
               &recorder_) {}

  static Frame frame(FrameType type, uint32_t seq, const Values& values) {
    FrameHeader header{.type = type};
    header.block = {.seq = seq, .operation_id = 9, .type = DataType::kInt32};
    return {header, bytes_of(values)};
  }
  // What the table sends when it receives this contribution.
  std::string contribute(int child, uint32_t seq, const Values& values) {
    table_.from_child(child, frame(FrameType::kContribution, seq, values));
    return recorder_.take();
  }
  std::string from_parent(FrameType type, uint32_t seq, const Values& values) {
    Frame down = frame(type, seq, values);
    down.header.is_down = true;
    table_.from_parent(down);
    return recorder_.take();
  }
  // A block to which each child contributes a 1.
  std::string whole_block(uint32_t seq) {
    return contribute(0, seq, {1}) + contribute(1, seq, {1}) + contribute(2, seq, {1});
  }

  Recorder recorder_;
  SlotTable table_;
};

TEST_F(SlotTableTest, CombinesAndSendsToAll) {
  EXPECT_EQ(contribute(1, 0, {1, 10}), "");
  EXPECT_EQ(contribute(0, 0, {2, 20}), "");
  EXPECT_EQ(contribute(2, 0, {4, 40}), "all 0:7,70");
  EXPECT_EQ(table_.counters().blocks, 1);
  EXPECT_EQ(table_.counters().combined, 3);
}

TEST_F(SlotTableTest, CombinesBlocksWithoutElements) {
  EXPECT_EQ(contribute(0, 0, {}) + contribute(1, 0, {}), "");
  EXPECT_EQ(contribute(2, 0, {}), "all 0:");
}

TEST_F(SlotTableTest, SaysWhichRanksAreMissing) {
  contribute(0, 1, {1});
  EXPECT_EQ(contribute(0, 1, {1}), "child 0 pending 1:1+2,3+1");
  contribute(1, 1, {1});
  EXPECT_EQ(contribute(0, 1, {1}), "child 0 pending 1:3+1");
  EXPECT_EQ(contribute(2, 1, {5}), "all 1:7");
}

TEST_F(SlotTableTest, KeepsAResultForThoseWhoLostIt) {
  whole_block(0);
  EXPECT_EQ(contribute(1, 0, {1}), "child 1 0:3");
  whole_block(2);
  EXPECT_EQ(contribute(2, 0, {1}), "child 2 0:3");
  EXPECT_EQ(table_.counters().duplicates, 2);
}

TEST_F(SlotTableTest, ReusesASlotAndDropsWhatIsOld) {
  whole_block(0);
  EXPECT_EQ(contribute(0, 4, {2}), "");
  EXPECT_EQ(contribute(1, 0, {1}), "");
  EXPECT_EQ(contribute(1, 4, {2}), "");
  EXPECT_EQ(contribute(2, 4, {2}), "all 4:6");
  EXPECT_EQ(table_.counters().stale, 1);
}

TEST_F(SlotTableTest, DropsWhatNoHostSends) {
  EXPECT_EQ(contribute(0, 4, {1}), "");  // block 0 comes first in that slot
  EXPECT_EQ(contribute(0, 0xfffffffc, {1}), "");
  whole_block(0);
  EXPECT_EQ(contribute(0, 8, {1}), "");
  EXPECT_EQ(contribute(0, 1, Values(17)), "");  // more elements than a block may have
  EXPECT_EQ(from_parent(FrameType::kContribution, 0, {1}), "");
  table_.from_child(0, frame(FrameType::kResult, 1, {1}));
  EXPECT_EQ(recorder_.take(), "");
  contribute(0, 1, {1});
  EXPECT_EQ(contribute(0, 5, {1}), "");  // block 1 is not complete
  EXPECT_EQ(table_.counters().violations, 6);
  EXPECT_EQ(table_.counters().stale, 1);
  EXPECT_EQ(contribute(0, 0, {1}), "child 0 0:3");
}

TEST_F(SlotTableTest, TellsAllWhoContributesToAnotherOperation) {
  const std::string told = "mismatch 0:4 bytes of operation 9 from 0, 8 of 9 from 1";
  contribute(0, 0, {1});
  EXPECT_EQ(contribute(1, 0, {1, 1}), "all " + told);
  EXPECT_EQ(contribute(1, 0, {1, 1}), "child 1 " + told);
  EXPECT_EQ(contribute(2, 0, {1}), "child 2 " + told);
  EXPECT_EQ(contribute(0, 4, {1}), "");  // the table never accepts this
  EXPECT_EQ(whole_block(1), "all 1:3");
  EXPECT_EQ(table_.counters().mismatches, 1);
  EXPECT_EQ(table_.counters().violations, 1);
}

TEST_F(SlotTableTest, OperationsDifferInAnyOfTheirProperties) {
  uint32_t seq = 0;
  for (const BlockId& other : {BlockId{0, 8, DataType::kInt32, ReduceOperation::kSum},
                               BlockId{0, 9, DataType::kUint32, ReduceOperation::kSum},
                               BlockId{0, 9, DataType::kInt32, ReduceOperation::kMax}}) {
    contribute(0, seq, {1});
    Frame differing = frame(FrameType::kContribution, seq, {});
    const Values one = {1};
    differing.header.block = other;
    differing.header.block.seq = seq;
    differing.payload = bytes_of(one);
    table_.from_child(2, differing);
    EXPECT_EQ(recorder_.take(), absl::StrCat("all mismatch ", seq, ":4 bytes of operation 9 from 0",
                                             ", 4 of ", other.operation_id, " from 3"));
    ++seq;
  }
}

TEST_F(SlotTableTest, NothingSpoilsAFinishedBlock) {
  whole_block(0);
  EXPECT_EQ(contribute(1, 0, {1, 1}), "");
  EXPECT_EQ(contribute(1, 0, {1}), "child 1 0:3");
  EXPECT_EQ(whole_block(4), "all 4:3");
  EXPECT_EQ(table_.counters().mismatches, 0);
  EXPECT_EQ(table_.counters().violations, 1);
}

// The table ignores frames of its own, of any type, that come back as if from a child.
TEST_F(SlotTableTest, DropsItsOwnFrames) {
  contribute(0, 0, {1});
  for (const FrameType type : {FrameType::kContribution, FrameType::kResult, FrameType::kPending,
                               FrameType::kMismatch, FrameType::kLost}) {
    Frame own = frame(type, 0, {1});
    own.header.is_down = true;
    own.header.number = 1000;
    table_.from_child(1, own);
    EXPECT_EQ(recorder_.take(), "");
  }
  EXPECT_EQ(table_.counters().violations, 5);
  EXPECT_EQ(contribute(1, 0, {1}) + contribute(2, 0, {1}), "all 0:3");
}

// All contributions are for one block and have these numbers.
TEST_F(SlotTableTest, AsksForContributionsThatGapsShowToBeLost) {
  const auto with_number = [&](int child, uint16_t number, bool is_numbered = true) {
    Frame numbered = frame(FrameType::kContribution, 0, {1});
    const Values one = {1};
    numbered.payload = bytes_of(one);
    numbered.header.number = number;
    numbered.header.is_numbered = is_numbered;
    table_.from_child(child, numbered);
    return recorder_.take();
  };
  EXPECT_EQ(with_number(0, 0), "");
  EXPECT_EQ(with_number(1, 2), "child 1 lost 0:0+2");
  EXPECT_EQ(with_number(2, 0xffff), "all 0:3");  // the number before the first
  EXPECT_EQ(with_number(2, 3), "child 2 lost 0:0+3; child 2 0:3");
  EXPECT_EQ(with_number(2, 4, false), "child 2 0:3");
  EXPECT_EQ(with_number(2, 6, false), "child 2 lost 0:4+2; child 2 0:3");
  EXPECT_EQ(with_number(2, 5), "child 2 0:3");  // it was only late
  EXPECT_EQ(with_number(2, 1000), absl::StrCat("child 2 lost 0:488+512; child 2 0:3"));
  EXPECT_EQ(table_.counters().lost, 2 + 3 + 2 + 512);
}

TEST_F(SlotTableTest, SendsResultsThatAreAskedFor) {
  for (const uint32_t seq : {1U, 0U, 2U, 4U}) whole_block(seq);
  EXPECT_EQ(recorder_.take_numbers(), (std::vector<uint16_t>{0, 1, 2, 3}));
  const auto ask_for = [&](uint16_t first, uint16_t count) {
    Frame lost = frame(FrameType::kLost, 0, {});
    const std::vector<std::byte> payload = encode_lost({first, count});
    lost.payload = payload;
    table_.from_child(1, lost);
    return recorder_.take();
  };
  EXPECT_EQ(ask_for(0, 3), "child 1 1:3; child 1 2:3");  // block 4 has taken the slot of block 0
  EXPECT_EQ(recorder_.take_numbers(), (std::vector<uint16_t>{4, 4}));
  EXPECT_EQ(ask_for(3, 500), "child 1 4:3");
  EXPECT_EQ(ask_for(4, 1), "");
  EXPECT_EQ(ask_for(1000, 20), "");
}

class ChildSlotTable : public SlotTableTest {
 protected:
  ChildSlotTable() : SlotTableTest(false) {}
};

TEST_F(ChildSlotTable, SendsUpAndPassesTheResultOn) {
  EXPECT_EQ(whole_block(0), "up 0:3");
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12}), "all 0:12");
  EXPECT_EQ(contribute(1, 0, {1}), "child 1 0:12");
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12}), "");  // a duplicate
}

TEST_F(ChildSlotTable, SendsThePartialAgain) {
  whole_block(0);
  EXPECT_EQ(contribute(1, 0, {1}), "up 0:3");
  EXPECT_EQ(contribute(0, 4, {1}), "");  // block 0 is not complete
}

TEST_F(ChildSlotTable, PassesOnWhatTheParentSays) {
  whole_block(0);
  const std::vector<std::byte> ranges = encode_ranges({{7, 2}});
  Frame pending = frame(FrameType::kPending, 0, {});
  pending.header.is_down = true;
  pending.payload = ranges;
  table_.from_parent(pending);
  EXPECT_EQ(recorder_.take(), "all pending 0:7+2");
}

TEST_F(ChildSlotTable, PassesOnWhoContributesToAnotherOperation) {
  const std::string told = "mismatch 0:12 bytes of operation 9 from 7, 4 of 8 from 8";
  const Mismatch known = {.length = 12,
                          .ranks = {7, 1},
                          .other = {.seq = 0, .operation_id = 8},
                          .other_length = 4,
                          .other_ranks = {8, 1}};
  const std::vector<std::byte> payload = encode_mismatch(known);
  Frame mismatch = frame(FrameType::kMismatch, 0, {});
  mismatch.payload = payload;
  mismatch.header.is_down = true;
  table_.from_parent(mismatch);
  EXPECT_EQ(recorder_.take(), absl::StrCat("all ", told, "; up ", told));
  mismatch.header.is_down = false;
  table_.from_child(0, mismatch);  // the switch's own frame comes back
  EXPECT_EQ(recorder_.take(), "");
  EXPECT_EQ(contribute(0, 0, {1}), absl::StrCat("child 0 ", told, "; up ", told));
  contribute(0, 1, {1});
  EXPECT_EQ(contribute(2, 1, {1, 2}),
            "all mismatch 1:4 bytes of operation 9 from 0, 8 of 9 from 3; "
            "up mismatch 1:4 bytes of operation 9 from 0, 8 of 9 from 3");
}

TEST_F(ChildSlotTable, SendsPartialsThatAreAskedForAndAsksForResults) {
  EXPECT_EQ(whole_block(0), "up 0:3");
  EXPECT_EQ(whole_block(1), "up 1:3");
  Frame lost = frame(FrameType::kLost, 0, {});
  const std::vector<std::byte> payload = encode_lost({0, 2});
  lost.payload = payload;
  lost.header.is_down = true;
  table_.from_parent(lost);
  EXPECT_EQ(recorder_.take(), "up 0:3; up 1:3");
  EXPECT_EQ(recorder_.take_numbers(), (std::vector<uint16_t>{0, 1, 2, 3}));
  const Values sum = {12};
  Frame result = frame(FrameType::kResult, 1, {});
  result.payload = bytes_of(sum);
  result.header.is_numbered = true;
  result.header.is_down = true;
  result.header.number = 1;
  table_.from_parent(result);
  EXPECT_EQ(recorder_.take(), "up lost 1:0+1; all 1:12");
  table_.from_parent(lost);
  EXPECT_EQ(recorder_.take(), "up 0:3");  // block 1 is complete
}

TEST_F(ChildSlotTable, TakesNoResultThatIsNotDue) {
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12}), "");
  contribute(0, 0, {1});
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12}), "");
  EXPECT_EQ(contribute(1, 0, {1}) + contribute(2, 0, {1}), "up 0:3");
  EXPECT_EQ(from_parent(FrameType::kResult, 4, {12}), "");
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12, 12}), "");
  EXPECT_EQ(table_.counters().stale, 3);
  EXPECT_EQ(table_.counters().violations, 1);
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12}), "all 0:12");
}

TEST_F(ChildSlotTable, DropsItsOwnFrames) {
  EXPECT_EQ(whole_block(0), "up 0:3");
  for (const FrameType type : {FrameType::kContribution, FrameType::kResult, FrameType::kLost}) {
    table_.from_parent(frame(type, 0, {12}));
    EXPECT_EQ(recorder_.take(), "");
  }
  EXPECT_EQ(table_.counters().violations, 3);
}

TEST_F(ChildSlotTable, ASpoiltBlockTakesNoResult) {
  EXPECT_EQ(whole_block(0), "up 0:3");
  EXPECT_NE(contribute(0, 0, {1, 1}), "");
  EXPECT_EQ(table_.counters().mismatches, 1);
  EXPECT_EQ(from_parent(FrameType::kResult, 0, {12}), "");
}

class WrappingSlotTable : public SlotTableTest {
 protected:
  WrappingSlotTable() : SlotTableTest(true, 0xfffffffd) {}
};

TEST_F(WrappingSlotTable, GoesOnPastTheLastSequenceNumber) {
  EXPECT_EQ(contribute(0, 0xfffffff9, {1}), "");  // the block before the first
  for (const uint32_t seq : {0xfffffffdU, 0xfffffffeU, 0xffffffffU, 0U, 1U, 2U}) {
    EXPECT_EQ(whole_block(seq), absl::StrCat("all ", seq, ":3"));
  }
  EXPECT_EQ(contribute(0, 0xfffffffe, {1}), "");
  EXPECT_EQ(table_.counters().stale, 2);
  EXPECT_EQ(contribute(0, 0xffffffff, {1}), "child 0 4294967295:3");
}

// Accepts all frames and reads every byte.
class Sink final : public Outlet {
 public:
  void to_parent(const FrameHeader&, absl::Span<const std::byte> payload) override {
    read(payload);
  }
  void to_child(int child, const FrameHeader&, absl::Span<const std::byte> payload) override {
    EXPECT_LT(child, 5);
    read(payload);
  }
  void to_children(const FrameHeader&, absl::Span<const std::byte> payload) override {
    read(payload);
  }

 private:
  void read(absl::Span<const std::byte> payload) {
    EXPECT_LE(payload.size(), 256);
    for (const std::byte byte : payload) all_ ^= byte;
  }
  std::byte all_{};
};

// A length that the decoder accepts for this type.
size_t length_of(FrameType type, std::mt19937& random) {
  if (type == FrameType::kMismatch) return 24;
  if (type == FrameType::kLost) return 4;
  const size_t most = type == FrameType::kPending ? 256 : 512;
  return random() % 20 == 0 ? random() % (most / 8) * 8 : 256;
}

// The table must survive any frame that the decoder accepts, from any child or the parent, in any
// order.
TEST(SlotTable, BearsHostileFrames) {
  std::mt19937 random(1);
  uint64_t blocks = 0;
  const std::vector<std::byte> noise(512, std::byte{0x11});  // also the payload of a mismatch
  for (int i = 0; i < 200; ++i) {
    Sink sink;
    SlotTable table({.window = 2,
                     .first_seq = static_cast<uint32_t>(0 - random() % 8),
                     .children = std::vector<RankRange>(5, {0, 1}),
                     .is_root = i % 2 == 0,
                     .payload = 256,
                     .reproducible = i % 3 == 0},
                    &sink);
    for (int frames = 0; frames < 1000; ++frames) {
      FrameHeader header;
      const bool from_parent = random() % 4 == 0;
      header.type = static_cast<FrameType>(1 + (random() % 16 == 0 ? random() % 5 : from_parent));
      header.block = {.seq = static_cast<uint32_t>(random() % 16 - 8),
                      .operation_id = static_cast<uint32_t>(random() % 2000 == 0),
                      .type = static_cast<DataType>(1 + random() % 2000 / 1994),
                      .operation = static_cast<ReduceOperation>(1 + random() % 2000 / 1998)};
      header.is_numbered = random() % 2 == 0;
      header.is_down = from_parent == (random() % 16 != 0);
      header.number = static_cast<uint16_t>(frames + random() % 3 + random() % 50 / 49 * random());
      const Frame frame = {header, absl::MakeSpan(noise).first(length_of(header.type, random))};
      if (from_parent) {
        table.from_parent(frame);
      } else {
        table.from_child(static_cast<int>(random() % 5), frame);
      }
    }
    blocks += table.counters().blocks;
  }
  EXPECT_GT(blocks, 500);  // the test made progress
}

TEST(SlotTableOptions, AreChecked) {
  SlotTableOptions good{.window = 4, .children = {{0, 1}}, .payload = 1440};
  EXPECT_TRUE(check(good).ok());
  for (const uint32_t window : {0U, 3U, 2 * kMaxWindow}) {
    SlotTableOptions options = good;
    options.window = window;
    EXPECT_EQ(
        check(options).message(),
        absl::StrCat("the window has ", window, " blocks; it must be a power of two up to 65536"));
  }
  for (const size_t children : {0, 65}) {
    SlotTableOptions options = good;
    options.children.assign(children, {0, 1});
    EXPECT_EQ(check(options).message(),
              absl::StrCat("the switch has ", children, " children; it must have 1 to 64"));
  }
  for (const size_t payload : {size_t{0}, size_t{12}, kMaxPayload + 8}) {
    SlotTableOptions options = good;
    options.payload = payload;
    EXPECT_FALSE(check(options).ok());
  }
}

TEST(SlotTableOptions, MemoryIsThatOfTheWorstCase) {
  SlotTableOptions options{.window = 4, .children = std::vector<RankRange>(7), .payload = 1440};
  const size_t single = SlotTable::memory_of(options);
  EXPECT_GT(single, 8 * (1472 + sizeof(SingleBuffer)));
  EXPECT_LT(single, 8 * (1472 + 256));
  options.reproducible = true;
  const size_t pointers = 13 * sizeof(std::byte*);  // one for each node
  EXPECT_EQ(SlotTable::memory_of(options) - single,
            8 * (3 * 1472 + sizeof(TreeAggregation) + pointers - sizeof(SingleBuffer)));
}

}  // namespace
}  // namespace nezha::flare
