// SPDX-License-Identifier: Apache-2.0
#include "control/control_message.h"

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace nezha::control_message {
namespace {

constexpr int kLanes = 3;
constexpr size_t kWord = 8;  // bytes
constexpr uint32_t kWhole = SliceBounds::kWhole;
constexpr auto kOther = Algorithm::kHalvingDoubling;

const std::vector<OperationId> kOperations{{1, 1}, {0xffff'ffff, ~uint64_t{0}}, {0, 7}};

// Returns messages of each kind, up to the limits of their values.
std::vector<Message> examples() {
  constexpr Nanos kLong = std::numeric_limits<Nanos>::max();
  return {
      Lanes{0},
      Lanes{0b101},
      Readings{},
      Readings{{{{3, 9}, 1 << 20, 1, {1000, 0, 2000}}}},
      Readings{{{{3, 9}, 0, 0, {0, 0, 0}},
                {{0xffff'ffff, ~uint64_t{0}}, ~uint64_t{0}, 0xffff'ffff, {kLong, 1, 0}, kLong}}},
      Prepare{1},
      Prepare{0xffff'ffff},
      Report{1, {}},
      Report{7, kOperations},
      Commit{1, 0, {}, {}},
      Commit{2, 0b111, {{20, 1, {kWhole, 0, 0}}}, {}},
      Commit{0xffff'ffff,
             0b100,
             {{0, 1, {1, 2, kWhole - 3}, kOther}, {63, 0xffff'ffff, {kWhole / 2, kWhole / 2, 0}}},
             kOperations},
      Lost{0},
      Freeze{0xffff'ffff, 2},
      Frozen{1, {}},
      Frozen{2, {{{3, 9}, {}, {{0, 8}, {16, uint64_t{1} << 60}}}, {{3, 10}, {{64, 1}}, {}}}},
      Recover{0xffff'ffff, {}},
      Recover{3, {{{3, 9}, {}}, {{3, 10}, {{{0, 8}, Repair::kNobody}, {{8, 8}, 0}, {{32, 1}, 7}}}}},
  };
}

// Describes a message by its kind and encoding, since most of the types have no comparison.
std::string describe(const Message& message) {
  return testing::PrintToString(message.index()) + encode(message);
}
bool same(const Message& a, const Message& b) { return describe(a) == describe(b); }

// Checks what the recipient of a message relies on.
void expect_sense(const Message& message) {
  if (const auto* lanes = std::get_if<Lanes>(&message)) {
    EXPECT_EQ(lanes->live & ~all_lanes(kLanes), 0u);
  }
  if (const auto* readings = std::get_if<Readings>(&message)) {
    for (const Reading& reading : readings->readings) {
      EXPECT_EQ(reading.lanes.size(), kLanes);
      for (const Nanos time : reading.lanes) EXPECT_GE(time, 0);
    }
  }
  if (const auto* commit = std::get_if<Commit>(&message)) {
    for (const AllocationChange& change : commit->changes) {
      EXPECT_LT(change.size_class, kSizeClasses);
      EXPECT_GT(change.number, 0u);
      ASSERT_EQ(change.allocation.size(), kLanes);
      EXPECT_EQ(std::accumulate(change.allocation.begin(), change.allocation.end(), uint64_t{0}),
                kWhole);
    }
  }
  if (const auto* lost = std::get_if<Lost>(&message)) {
    EXPECT_LT(lost->lane, kLanes);
  }
  if (const auto* freeze = std::get_if<Freeze>(&message)) {
    EXPECT_LT(freeze->lane, kLanes);
  }
  if (const auto* frozen = std::get_if<Frozen>(&message)) {
    for (const FrozenPart& part : frozen->parts) {
      for (const ChunkMap* map : {&part.final, &part.missing}) {
        ChunkMap ordered;
        for (const Range& range : *map) {
          EXPECT_TRUE(intersection(ordered, {range}).empty());
          add(ordered, range);
        }
        EXPECT_EQ(ordered.size(), map->size());
      }
    }
  }
  if (const auto* recover = std::get_if<Recover>(&message)) {
    for (const Repair& repair : recover->repairs) {
      ChunkMap before;
      for (const Repair::Piece& piece : repair.pieces) {
        EXPECT_GE(piece.source, Repair::kNobody);
        EXPECT_TRUE(intersection(before, {piece.range}).empty());
        add(before, piece.range);
      }
    }
  }
}

std::string words(const std::vector<uint64_t>& values) {
  std::string bytes;
  for (const uint64_t value : values) {
    for (size_t i = 0; i < kWord; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  }
  return bytes;
}

bool is_refused(const std::vector<uint64_t>& values) {
  const auto message = decode(words(values), kLanes);
  return !message.ok() && absl::IsInvalidArgument(message.status());
}

TEST(ControlMessage, SurvivesEncodingAndDecoding) {
  for (const Message& message : examples()) {
    const std::string bytes = encode(message);
    EXPECT_EQ(bytes.size() % kWord, 0);
    const auto decoded = decode(bytes, kLanes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_TRUE(same(message, *decoded)) << testing::PrintToString(bytes);
    expect_sense(*decoded);
  }
}

// Shows errors that `encode` and `decode` share.
TEST(ControlMessage, IsLittleEndianWordsOfWhichTheFirstIsTheKind) {
  EXPECT_EQ(encode(Lanes{5}), words({0, 5}));
  EXPECT_EQ(encode(Readings{{{{3, 9}, 100, 2, {7, 0, 8}, 4}}}),
            words({1, 3, 9, 100, 2, 7, 0, 8, 4}));
  EXPECT_EQ(encode(Prepare{0x1234}), words({2, 0x1234}));
  EXPECT_EQ(encode(Report{6, {{1, 2}, {3, 4}}}), words({3, 6, 1, 2, 3, 4}));
  EXPECT_EQ(encode(Commit{6, 5, {{20, 4, {0, kWhole, 0}, kOther, true}}, {{1, 2}}}),
            words({4, 6, 5, 1, 20, 4, 0, kWhole, 0, 3, 1, 1, 2}));
  EXPECT_EQ(encode(Lost{2}), words({5, 2}));
  EXPECT_EQ(encode(Freeze{3, 2}), words({6, 3, 2}));
  EXPECT_EQ(encode(Frozen{3, {{{1, 2}, {{8, 4}}, {}}}}), words({7, 3, 1, 2, 1, 8, 4, 0}));
  EXPECT_EQ(encode(Recover{3, {{{1, 2}, {{{8, 4}, 5}, {{16, 4}, Repair::kNobody}}}}}),
            words({8, 3, 1, 2, 2, 8, 4, 6, 16, 4, 0}));

  const auto commit = decode(words({4, 6, 5, 1, 20, 4, 0, kWhole, 0, 3, 1, 1, 2}), kLanes);
  ASSERT_TRUE(commit.ok());
  const auto& read = std::get<Commit>(*commit);
  EXPECT_EQ(read.plan, 6u);
  EXPECT_EQ(read.engines, 5u);
  ASSERT_EQ(read.changes.size(), 1u);
  EXPECT_EQ(read.changes[0].size_class, 20);
  EXPECT_EQ(read.changes[0].number, 4u);
  EXPECT_EQ(read.changes[0].allocation, (Allocation{0, kWhole, 0}));
  EXPECT_EQ(read.changes[0].algorithm, kOther);
  EXPECT_TRUE(read.changes[0].is_return);
  EXPECT_EQ(read.keep, (std::vector<OperationId>{{1, 2}}));

  const auto readings = decode(words({1, 3, 9, 100, 2, 7, 0, 8, 4}), kLanes);
  ASSERT_TRUE(readings.ok());
  const Reading& reading = std::get<Readings>(*readings).readings.at(0);
  EXPECT_EQ(reading.operation, (OperationId{3, 9}));
  EXPECT_EQ(reading.bytes, 100u);
  EXPECT_EQ(reading.allocation, 2u);
  EXPECT_EQ(reading.lanes, (LaneTimes{7, 0, 8}));
  EXPECT_EQ(reading.idle, 4);
}

// ---- Messages that no rank sends ---------------------------------------------------------------

// A message that is cut short is refused, unless what is left is whole and has a shorter list.
TEST(ControlMessage, IsNotReadWhenItIsCutShort) {
  for (const Message& message : examples()) {
    const std::string bytes = encode(message);
    for (size_t length = 0; length < bytes.size(); ++length) {
      const auto decoded = decode(absl::string_view(bytes).substr(0, length), kLanes);
      if (!decoded.ok()) {
        EXPECT_TRUE(absl::IsInvalidArgument(decoded.status()));
        continue;
      }
      EXPECT_EQ(length % kWord, 0);
      EXPECT_EQ(decoded->index(), message.index());
      EXPECT_TRUE(absl::StartsWith(bytes, encode(*decoded)));
      expect_sense(*decoded);
    }
    EXPECT_FALSE(decode(bytes + '\0', kLanes).ok());
  }
  EXPECT_TRUE(is_refused({}));
  EXPECT_TRUE(is_refused({0}));
  EXPECT_TRUE(is_refused({2}));
  EXPECT_TRUE(is_refused({3}));
  EXPECT_TRUE(is_refused({3, 1, 5})) << "half an operation";
  EXPECT_TRUE(is_refused({4, 1}));
  EXPECT_TRUE(is_refused({1, 3, 9, 100, 2, 7, 0})) << "a lane is missing";
}

TEST(ControlMessage, IsRefusedWithTrailingWords) {
  EXPECT_TRUE(is_refused({0, 5, 0}));
  EXPECT_TRUE(is_refused({2, 1, 0}));
  EXPECT_TRUE(is_refused({5}));
  EXPECT_TRUE(is_refused({~uint64_t{0}, 1}));
}

// Replaces each word by several values, and flips each bit.
TEST(ControlMessage, ChangedWordsAreRefusedOrMakeSense) {
  constexpr std::array<uint64_t, 12> kValues{
      0,   1,      2,           kLanes,        kSizeClasses,      255,
      256, kWhole, 0xffff'ffff, 0x1'0000'0000, uint64_t{1} << 63, ~uint64_t{0}};
  const auto check = [](const std::string& bytes) {
    const auto decoded = decode(bytes, kLanes);
    if (!decoded.ok()) return;
    expect_sense(*decoded);
    EXPECT_EQ(encode(*decoded), bytes) << "it was read as something else";
  };
  for (const Message& message : examples()) {
    const std::string bytes = encode(message);
    for (size_t at = 0; at < bytes.size(); at += kWord) {
      for (const uint64_t value : kValues) {
        std::string changed = bytes;
        changed.replace(at, kWord, words({value}));
        check(changed);
      }
      for (size_t bit = 0; bit < 8 * kWord; ++bit) {
        std::string changed = bytes;
        changed[at + bit / 8] = static_cast<char>(changed[at + bit / 8] ^ (1 << bit % 8));
        check(changed);
      }
    }
  }
}

TEST(ControlMessage, RandomWordsAreRefusedOrMakeSense) {
  std::mt19937_64 random(1);
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<uint64_t> values{random() % 10};
    for (uint64_t more = random() % 12; more > 0; --more) {
      values.push_back(random() % 4 == 0 ? random() : random() % 4);
    }
    const auto decoded = decode(words(values), kLanes);
    if (!decoded.ok()) continue;
    ++read;
    expect_sense(*decoded);
    EXPECT_EQ(encode(*decoded), words(values));
  }
  EXPECT_GT(read, 1000);
}

TEST(ControlMessage, RefusesInvalidAllocations) {
  const auto commit_of = [](const std::vector<uint64_t>& change) {
    std::vector<uint64_t> values{4, 1, 0, 1};
    values.insert(values.end(), change.begin(), change.end());
    return values;
  };
  EXPECT_FALSE(is_refused(commit_of({20, 1, kWhole - 2, 1, 1, 0, 0})));
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole - 1, 1, 1, 0, 0}))) << "too much";
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole - 2, 1, 0, 0, 0}))) << "too little";
  EXPECT_TRUE(is_refused(commit_of({20, 1, 0, 0, 0, 0, 0})));
  EXPECT_TRUE(is_refused(commit_of({20, 1, 0xffff'ffff, 1, kWhole, 0, 0})))
      << "modulo 2^32 it is right";
  EXPECT_TRUE(is_refused(commit_of({20, 0, kWhole, 0, 0, 0, 0}))) << "numbers begin with 1";
  EXPECT_TRUE(is_refused(commit_of({64, 1, kWhole, 0, 0, 0, 0}))) << "no such class";
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole, 0, 0, 0}))) << "a lane is missing";
  EXPECT_FALSE(is_refused(commit_of({20, 1, kWhole, 0, 0, 2, 1})));
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole, 0, 0, 2, 2}))) << "neither true nor false";
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole, 0, 0, 1, 0}))) << "a ring sums differently";
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole, 0, 0, 6, 0}))) << "no such algorithm";
  EXPECT_TRUE(is_refused(commit_of({20, 1, kWhole, 0, 0, 256 + 2, 0})));
}

TEST(ControlMessage, RefusesUnknownLanes) {
  EXPECT_FALSE(is_refused({0, 0b111}));
  EXPECT_TRUE(is_refused({0, 0b1000}));
  EXPECT_TRUE(is_refused({0, uint64_t{1} << 32}));
}

TEST(ControlMessage, RefusesInvalidDurations) {
  EXPECT_TRUE(is_refused({1, 3, 9, 100, 2, 7, 0, uint64_t{1} << 63}));
  EXPECT_TRUE(is_refused({1, uint64_t{1} << 32, 9, 100, 2, 7, 0, 8})) << "the tag is too large";
}

// If `decode` took memory for as many changes as the message announces, the process would end here.
TEST(ControlMessage, RefusesMoreChangesThanItHas) {
  for (const uint64_t count :
       {uint64_t{2}, uint64_t{6}, uint64_t{1} << 40, uint64_t{1} << 61, ~uint64_t{0}}) {
    EXPECT_TRUE(is_refused({4, 1, 0, count, 20, 1, kWhole, 0, 0})) << count;
  }
}

}  // namespace
}  // namespace nezha::control_message
