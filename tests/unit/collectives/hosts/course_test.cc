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

TEST(Course, ElementsAreBegunAsAWhole) {
  const Course large = course(100 * kLongSegment);
  EXPECT_EQ(large.due(0, 0, 192), 4 * kLongSegment / 192 * 192);
}

}  // namespace
}  // namespace nezha
