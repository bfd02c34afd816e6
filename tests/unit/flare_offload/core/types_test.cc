// SPDX-License-Identifier: Apache-2.0
// Each type and operation that switches reduce, with each design of aggregation, from the
// contributions' datagrams to the result's.
#include "nezha/types.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "flare_offload/core/slot_table.h"
#include "gtest/gtest.h"
#include "tests/unit/collectives/reference.h"

namespace nezha::flare {
namespace {

constexpr int kRanks = 5;
constexpr size_t kCount = 37;  // elements; a number that fills no vector evenly
constexpr size_t kRoom = 512;

// Encodes results as for the network, and keeps the last one.
class Last final : public Outlet {
 public:
  void to_parent(const FrameHeader&, absl::Span<const std::byte>) override { FAIL(); }
  void to_child(int, const FrameHeader&, absl::Span<const std::byte>) override { FAIL(); }
  void to_children(const FrameHeader& header, absl::Span<const std::byte> payload) override {
    datagram_.resize(kHeaderSize + payload.size());
    encode(header, payload, authenticator_, datagram_.data());
    ASSERT_TRUE(authenticator_.verify(datagram_));
  }
  std::optional<Frame> take() {
    taken_ = std::exchange(datagram_, {});
    return decode(taken_);
  }

 private:
  Authenticator authenticator_{Key{}};
  std::vector<std::byte> datagram_;
  std::vector<std::byte> taken_;
};

template <typename T>
class Types : public ::testing::Test {
 protected:
  using Elements = std::vector<T>;

  // Values so small that products stay in the range of the floating-point types.
  Elements some_elements() {
    Elements elements(kCount);
    for (T& element : elements) {
      const auto value = static_cast<float>(random_() % 17) - (std::is_unsigned_v<T> ? 0 : 8);
      element = T(value / (std::is_integral_v<T> ? 1 : 7));
    }
    return elements;
  }
  std::vector<Elements> some_inputs() {  // one vector for each rank
    std::vector<Elements> inputs(kRanks);
    for (Elements& elements : inputs) elements = some_elements();
    return inputs;
  }
  // The table's result for a block to which the ranks contribute in this order.
  Elements reduced(SlotTable& table, uint32_t seq, ReduceOperation operation,
                   const std::vector<Elements>& inputs, const std::vector<int>& order) {
    for (const int child : order) {
      Authenticator authenticator{Key{}};
      const Elements& input = inputs[static_cast<size_t>(child)];
      std::vector<std::byte> datagram(kHeaderSize + kCount * sizeof(T));
      const FrameHeader header = {.child = static_cast<uint8_t>(child),
                                  .block = {seq, 0, dataTypeOf<T>(), operation}};
      encode(header, {reinterpret_cast<const std::byte*>(input.data()), kCount * sizeof(T)},
             authenticator, datagram.data());
      const auto frame = decode(datagram);
      EXPECT_TRUE(frame.has_value());
      if (frame) table.from_child(child, *frame);
    }
    Elements result(kCount);
    const auto frame = last_.take();
    EXPECT_TRUE(frame && frame->payload.size() == kCount * sizeof(T));
    if (frame) std::memcpy(result.data(), frame->payload.data(), frame->payload.size());
    return result;
  }
  SlotTableOptions options() const {
    return {.window = 2, .children = std::vector<RankRange>(kRanks), .payload = kRoom};
  }

  std::mt19937 random_{1};
  Last last_;
};

template <typename T>
T at_once(ReduceOperation operation, const std::vector<T>& operands) {
  T total = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    total = reference::combine(operation, total, operands[i]);
  }
  return total;
}

template <typename T>
using Combine = std::type_identity_t<std::function<T(ReduceOperation, const std::vector<T>&)>>;

template <typename T>
void expect_same(const std::vector<T>& actual, const std::vector<std::vector<T>>& inputs,
                 const std::vector<int>& order, ReduceOperation operation,
                 const Combine<T>& combine) {
  for (size_t i = 0; i < kCount; ++i) {
    std::vector<T> operands;
    operands.reserve(order.size());
    for (const int child : order) operands.push_back(inputs[static_cast<size_t>(child)][i]);
    ASSERT_EQ(reference::bits_of(actual[i]), reference::bits_of(combine(operation, operands)))
        << nameOf(operation) << ", element " << i;
  }
}

using All = ::testing::Types<float, uint8_t, int8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
                             uint64_t, Float16, BFloat16, double>;
TYPED_TEST_SUITE(Types, All);

constexpr ReduceOperation kReduced[] = {ReduceOperation::kSum, ReduceOperation::kProduct,
                                        ReduceOperation::kMin, ReduceOperation::kMax};

TYPED_TEST(Types, OneBufferAddsInTheOrderOfArrival) {
  SlotTable table(this->options(), &this->last_);
  uint32_t seq = 0;
  std::vector<int> order = {0, 1, 2, 3, 4};
  for (const ReduceOperation operation : kReduced) {
    const auto inputs = this->some_inputs();
    std::shuffle(order.begin(), order.end(), this->random_);
    const auto result = this->reduced(table, seq++, operation, inputs, order);
    expect_same(result, inputs, order, operation, at_once<TypeParam>);
  }
}

// One buffer adds ranks 0, 2 and 4 and the other ranks 1 and 3, each in the order of arrival.
TYPED_TEST(Types, TwoBuffersAreCombinedAtTheEnd) {
  SlotTableOptions options = this->options();
  options.buffers = 2;
  SlotTable table(options, &this->last_);
  uint32_t seq = 0;
  const auto by_two = [](ReduceOperation operation, const std::vector<TypeParam>& operands) {
    return reference::combine(
        operation, at_once(operation, std::vector(operands.begin(), operands.begin() + 3)),
        at_once(operation, std::vector(operands.begin() + 3, operands.end())));
  };
  for (const ReduceOperation operation : kReduced) {
    const auto inputs = this->some_inputs();
    const auto result = this->reduced(table, seq++, operation, inputs, {4, 1, 3, 0, 2});
    expect_same(result, inputs, {4, 0, 2, 1, 3}, operation, by_two);
  }
}

// Tries 1,000 orders of arrival for the sum, which is the operation that depends on the order.
TYPED_TEST(Types, ATreeHasTheSameBitsWhateverTheOrderOfArrival) {
  SlotTableOptions options = this->options();
  options.reproducible = true;
  SlotTable table(options, &this->last_);
  uint32_t seq = 0;
  std::vector<int> order = {0, 1, 2, 3, 4};
  const std::vector<int> ranks = order;
  for (const ReduceOperation operation : kReduced) {
    const auto inputs = this->some_inputs();
    for (int i = 0; i < (operation == ReduceOperation::kSum ? 1000 : 10); ++i) {
      std::shuffle(order.begin(), order.end(), this->random_);
      const auto result = this->reduced(table, seq++, operation, inputs, order);
      ASSERT_NO_FATAL_FAILURE(
          expect_same(result, inputs, ranks, operation, ::nezha::over_tree<TypeParam>));
    }
  }
}

}  // namespace
}  // namespace nezha::flare
