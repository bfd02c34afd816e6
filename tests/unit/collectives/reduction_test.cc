#include "collectives/reduction.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

constexpr size_t kPadding = 64;  // bytes before and after, which must stay

// Memory at a chosen misalignment, with what is around it.
struct Block {
  std::vector<unsigned char> bytes;
  size_t begin;
  size_t elements;
  Block(size_t misalignment, size_t its_elements)
      : bytes(2 * kPadding + misalignment + its_elements * sizeof(float), 0xa5),
        begin(kPadding + misalignment),
        elements(its_elements) {}
  void* data() { return bytes.data() + begin; }
  void fill(std::mt19937& random) {
    for (size_t i = 0; i < elements; ++i) {
      // Of very different sizes, so that another order or precision shows.
      const float value = std::ldexp(static_cast<float>(random() % 20001) - 10000,
                                     static_cast<int>(random() % 40) - 20);
      std::memcpy(bytes.data() + begin + i * sizeof(float), &value, sizeof value);
    }
  }
  float at(size_t i) const {
    float value;
    std::memcpy(&value, bytes.data() + begin + i * sizeof(float), sizeof value);
    return value;
  }
  void expect_padding() const {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i >= begin && i < begin + elements * sizeof(float)) continue;
      ASSERT_EQ(bytes[i], 0xa5) << "written outside";
    }
  }
};

class ReductionSum : public ::testing::TestWithParam<size_t> {};

TEST_P(ReductionSum, IsThePlainLoop) {
  const size_t elements = GetParam();
  std::mt19937 random(static_cast<uint32_t>(elements) + 1);
  const Reduction reduce = reduction(DataType::kFloat32, ReduceOperation::kSum);
  for (size_t misalignment = 0; misalignment < 64; misalignment += 4) {
    for (int where = 0; where < 3; ++where) {
      Block a(misalignment, elements), b((misalignment * 7) % 60 / 4 * 4, elements),
          separate((misalignment * 3) % 64, elements);
      a.fill(random);
      b.fill(random);
      std::vector<float> expected;
      for (size_t i = 0; i < elements; ++i) expected.push_back(a.at(i) + b.at(i));
      const Block a_before = a, b_before = b;
      Block& out = where == 0 ? separate : where == 1 ? a : b;
      reduce(out.data(), a.data(), b.data(), elements);
      for (size_t i = 0; i < elements; ++i) ASSERT_EQ(out.at(i), expected[i]) << i;
      out.expect_padding();
      if (where != 1) {
        EXPECT_EQ(a.bytes, a_before.bytes);
      }
      if (where != 2) {
        EXPECT_EQ(b.bytes, b_before.bytes);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, ReductionSum,
                         ::testing::Values(0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127,
                                           129, 1000, 4097));

}  // namespace
}  // namespace nezha
