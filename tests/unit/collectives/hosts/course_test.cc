// SPDX-License-Identifier: Apache-2.0
#include "collectives/hosts/course.h"

#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr size_t kGranule = 64;

Course course(size_t length) {
  Course course;
  course.begun.length = length;
  course.window = 4 * kLongSegment + kLongSegment / 8;
  return course;
}

TEST(Course, WhatFitsTheWindowIsBegunAtOnce) {
  for (const size_t length : {size_t{0}, size_t{4}, kLongSegment + 4, course(0).window}) {
    EXPECT_EQ(course(length).due(0, 0, kGranule), length);
  }
}

TEST(Course, BeginsWholeSegmentsAsOthersComeAround) {
  const Course large = course(100 * kLongSegment);
  const uint64_t begun = large.due(0, 0, kGranule);
  EXPECT_EQ(begun, 4 * kLongSegment);
  EXPECT_EQ(large.due(begun, 0, kGranule), 0u);
  EXPECT_EQ(large.due(begun, kLongSegment / 8 * 7 - 1, kGranule), 0u);
  EXPECT_EQ(large.due(begun, kLongSegment / 8 * 7, kGranule), kLongSegment);
  EXPECT_EQ(large.due(begun, 3 * kLongSegment, kGranule), 3 * kLongSegment);
}

TEST(Course, BeginsTheLastPartOnceItFitsTheWindow) {
  const Course large = course(5 * kLongSegment + 4);
  const uint64_t begun = 4 * kLongSegment;
  const uint64_t one_fits = kLongSegment / 8 * 7;
  EXPECT_EQ(large.due(begun, one_fits, kGranule), kLongSegment);
  EXPECT_EQ(large.due(begun, one_fits + 4, kGranule), kLongSegment + 4);
  EXPECT_EQ(large.due(large.begun.length, 0, kGranule), 0u);
}

TEST(Course, AWideCourseHasLongSegmentsUnderWayOnEachRail) {
  constexpr size_t kRails = 4;
  for (const bool comes_around : {false, true}) {
    Course wide = course(100 * kLongSegment);
    wide.legs.resize(1);
    wide.legs[0].came_around = comes_around;
    wide.widen(kRails);
    EXPECT_EQ(wide.keeps_rails, comes_around);
    const uint64_t begun = wide.due(0, 0, kGranule);
    EXPECT_GE(begun, 2 * kRails * kLongSegment);
    // A piece is long enough where all rails share it, and no longer than a segment where one has
    // it.
    EXPECT_EQ(wide.due(begun, wide.piece, kGranule), wide.piece);
    EXPECT_EQ(wide.piece, comes_around ? kLongSegment / 2 : kRails * kLongSegment / 2);
  }
}

TEST(Course, ElementsAreBegunAsAWhole) {
  const Course large = course(100 * kLongSegment);
  EXPECT_EQ(large.due(0, 0, 192), 4 * kLongSegment / 192 * 192);
}

}  // namespace
}  // namespace nezha
