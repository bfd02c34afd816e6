// SPDX-License-Identifier: Apache-2.0
#include "collectives/reduction.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "tests/unit/collectives/reference.h"

namespace nezha {
namespace {

using reference::bits_of;
using reference::kOperations;

constexpr std::array<size_t, 18> kLengths = {0,  1,  2,  3,  7,  8,   15,  16,   17,
                                             31, 33, 63, 64, 65, 127, 129, 1000, 4097};
constexpr size_t kPadding = 64;  // bytes before and after that must not change

// Memory with the chosen misalignment in bytes, with padding around it.
struct Block {
  std::vector<unsigned char> bytes;
  size_t begin;
  size_t size;
  Block(size_t misalignment, size_t its_size)
      : bytes(2 * kPadding + misalignment + its_size, 0xa5),
        begin(kPadding + misalignment),
        size(its_size) {}
  void* data() { return bytes.data() + begin; }
  template <typename T>
  void set(size_t i, T value) {
    std::memcpy(bytes.data() + begin + i * sizeof value, &value, sizeof value);
  }
  template <typename T>
  T at(size_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + begin + i * sizeof value, sizeof value);
    return value;
  }
  void expect_padding() const {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (i >= begin && i < begin + size) continue;
      ASSERT_EQ(bytes[i], 0xa5) << "written outside";
    }
  }
};

// Random bits; for floating-point types sometimes a special value.
template <typename T>
T any(std::mt19937_64& random) {
  T value;
  const uint64_t bits = random();
  std::memcpy(&value, &bits, sizeof value);
  if constexpr (!std::is_integral_v<T>) {
    if (random() % 4 != 0) return value;
    using Limits = std::numeric_limits<std::conditional_t<reference::kIsShort<T>, float, T>>;
    const std::array special = {0 * Limits::max(),    Limits::infinity(), Limits::quiet_NaN(),
                                Limits::denorm_min(), Limits::min(),      Limits::max(),
                                Limits::max() / 3,    Limits::epsilon()};
    const auto chosen = special[random() % special.size()];
    return T(random() % 2 == 0 ? chosen : -chosen);
  } else {
    return value;
  }
}

template <typename T>
void fill(Block& block, std::mt19937_64& random) {
  for (size_t i = 0; i < block.size / sizeof(T); ++i) block.set(i, any<T>(random));
}

// The C++ types by their DataType.
template <typename F>
void with_type(DataType type, const F& f) {
  switch (type) {
    case DataType::kUint8:
      return f(uint8_t{});
    case DataType::kInt8:
      return f(int8_t{});
    case DataType::kUint16:
      return f(uint16_t{});
    case DataType::kInt16:
      return f(int16_t{});
    case DataType::kUint32:
      return f(uint32_t{});
    case DataType::kInt32:
      return f(int32_t{});
    case DataType::kUint64:
      return f(uint64_t{});
    case DataType::kInt64:
      return f(int64_t{});
    case DataType::kFloat16:
      return f(Float16{});
    case DataType::kBFloat16:
      return f(BFloat16{});
    case DataType::kFloat32:
      return f(float{});
    case DataType::kFloat64:
      return f(double{});
  }
}

// Each type with each instruction set that this CPU supports.
class ReductionTest : public ::testing::TestWithParam<std::tuple<int64_t, DataType>> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(std::get<0>(GetParam())); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
  static DataType type() { return std::get<1>(GetParam()); }
};

enum class Out { kSeparate, kIsA, kIsB };

template <typename T>
void expect_combined(ReduceOperation operation, size_t elements, size_t misalignment, Out where,
                     std::mt19937_64& random) {
  const size_t size = elements * sizeof(T);
  Block a(misalignment, size), b(misalignment * 7 % 61, size), separate(misalignment * 3, size);
  fill<T>(a, random);
  fill<T>(b, random);
  const Block a_before = a, b_before = b;
  Block& out = where == Out::kSeparate ? separate : where == Out::kIsA ? a : b;
  reduction(dataTypeOf<T>(), operation)(out.data(), a.data(), b.data(), elements);
  for (size_t i = 0; i < elements; ++i) {
    const T x = a_before.at<T>(i), y = b_before.at<T>(i);
    ASSERT_EQ(bits_of(out.at<T>(i)), bits_of(reference::combine(operation, x, y)))
        << nameOf(operation) << " of element " << i << " of " << elements << ": " << bits_of(x)
        << ", " << bits_of(y);
  }
  out.expect_padding();
  if (where != Out::kIsA) {
    EXPECT_EQ(a.bytes, a_before.bytes);
  }
  if (where != Out::kIsB) {
    EXPECT_EQ(b.bytes, b_before.bytes);
  }
}

TEST_P(ReductionTest, ReducesLikeAPlainLoop) {
  std::mt19937_64 random(17);
  with_type(type(), [&]<typename T>(T) {
    for (const ReduceOperation operation : kOperations) {
      for (const size_t elements : kLengths) {
        for (const size_t misalignment : {0, 1, 4, 8, 13}) {
          for (const Out where : {Out::kSeparate, Out::kIsA, Out::kIsB}) {
            expect_combined<T>(operation, elements, misalignment, where, random);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

TEST_P(ReductionTest, OperandsMayBeSwapped) {
  std::mt19937_64 random(18);
  with_type(type(), [&]<typename T>(T) {
    constexpr size_t kElements = 10'007;
    Block a(0, kElements * sizeof(T)), b = a, one = a, other = a;
    fill<T>(a, random);
    fill<T>(b, random);
    for (const ReduceOperation operation : kOperations) {
      const Reduction reduce = reduction(type(), operation);
      reduce(one.data(), a.data(), b.data(), kElements);
      reduce(other.data(), b.data(), a.data(), kElements);
      EXPECT_EQ(one.bytes, other.bytes) << nameOf(operation);
    }
  });
}

TEST_P(ReductionTest, DividesLikeAPlainLoop) {
  std::mt19937_64 random(19);
  with_type(type(), [&]<typename T>(T) {
    for (const int ranks : {1, 2, 3, 7, 10, 255, 256, 641, 65'537, 2'147'483'647}) {
      for (const size_t elements : kLengths) {
        const bool in_place = elements % 2 == 0;
        Block in(elements % 5, elements * sizeof(T)), separate(3, elements * sizeof(T));
        fill<T>(in, random);
        const Block before = in;
        Block& out = in_place ? in : separate;
        divide(type(), out.data(), in.data(), elements, ranks);
        for (size_t i = 0; i < elements; ++i) {
          const T x = before.at<T>(i);
          ASSERT_EQ(bits_of(out.at<T>(i)), bits_of(reference::divide(x, ranks)))
              << bits_of(x) << " by " << ranks;
        }
        out.expect_padding();
      }
    }
  });
}

using ShortReductionTest = ReductionTest;

// Combines each value of the 16-bit types with a few others, which covers all conversions and most
// ways to round.
TEST_P(ShortReductionTest, EveryValue) {
  std::mt19937_64 random(20);
  with_type(type(), [&]<typename T>(T) {
    constexpr size_t kElements = 1 << 16;
    Block a(0, kElements * sizeof(T)), b = a, out = a;
    for (size_t i = 0; i < kElements; ++i) a.set(i, static_cast<uint16_t>(i));
    for (int round = 0; round < 20; ++round) {
      const T same = round == 0 ? T{} : any<T>(random);
      for (size_t i = 0; i < kElements; ++i) b.set(i, round % 2 == 0 ? same : any<T>(random));
      for (const ReduceOperation operation : {ReduceOperation::kSum, ReduceOperation::kProduct}) {
        reduction(type(), operation)(out.data(), a.data(), b.data(), kElements);
        for (size_t i = 0; i < kElements; ++i) {
          ASSERT_EQ(bits_of(out.at<T>(i)),
                    bits_of(reference::combine(operation, a.at<T>(i), b.at<T>(i))))
              << nameOf(operation) << " of " << i << " and " << bits_of(b.at<T>(i));
        }
      }
    }
  });
}

std::string name_of_reduction(const ::testing::TestParamInfo<ReductionTest::ParamType>& param) {
  return absl::StrCat(hwy::TargetName(std::get<0>(param.param)), "_",
                      nameOf(std::get<1>(param.param)));
}

const auto kTargets = ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets());

INSTANTIATE_TEST_SUITE_P(
    , ReductionTest,
    ::testing::Combine(kTargets,
                       ::testing::Values(DataType::kUint8, DataType::kInt8, DataType::kUint16,
                                         DataType::kInt16, DataType::kUint32, DataType::kInt32,
                                         DataType::kUint64, DataType::kInt64, DataType::kFloat16,
                                         DataType::kBFloat16, DataType::kFloat32,
                                         DataType::kFloat64)),
    name_of_reduction);
INSTANTIATE_TEST_SUITE_P(, ShortReductionTest,
                         ::testing::Combine(kTargets, ::testing::Values(DataType::kFloat16,
                                                                        DataType::kBFloat16)),
                         name_of_reduction);

TEST(Reduction, IsNullForUnknownTypesAndOperations) {
  EXPECT_EQ(reduction(DataType::kFloat32, ReduceOperation::kCustom), nullptr);
  EXPECT_EQ(reduction(DataType::kFloat32, static_cast<ReduceOperation>(99)), nullptr);
  EXPECT_EQ(reduction(static_cast<DataType>(99), ReduceOperation::kSum), nullptr);
}

}  // namespace
}  // namespace nezha
