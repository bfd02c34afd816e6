// SPDX-License-Identifier: Apache-2.0
// Several inputs and outputs, and functions that are not commutative.

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/scenarios/scenario.h"
#include "nezha/allreduce.h"

namespace nezha::scenarios {
namespace {

void several_inputs_and_outputs(World& world) {
  const auto context = world.join();
  for (const size_t elements : kSizes) {
    const Vector input(world, elements, 1);
    Vector one(world, elements, 1), two(world, elements, 1);
    nezha::AllreduceOptions options = one.options(context, 1);
    options.setInputs<float>({input.values.data(), one.values.data(), input.values.data()},
                             elements);
    options.setOutputs<float>({one.values.data(), two.values.data()}, elements);
    nezha::allreduce(options);
    one.check_sum(3);
    two.check_sum(3);
    check(input.is_untouched(), "an input was written to");

    // Without inputs, the outputs serve as inputs.
    Vector three(world, elements, 2), four(world, elements, 2);
    options = three.options(context, 1);
    options.setOutputs<float>({three.values.data(), four.values.data()}, elements);
    nezha::allreduce(options);
    three.check_sum(2);
    four.check_sum(2);
  }
}

// The function x -> m·x + c of a rank's input, modulo 2^32. Composition is associative but not
// commutative. The upper half of the number is m.
uint64_t line(int rank, size_t input, size_t i) {
  const uint64_t x = (i + 1) * 0x9e3779b97f4a7c15U + (static_cast<size_t>(rank) * 2 + input) * 977;
  return x ^ x >> 29;
}

// Applies a first, then b.
uint64_t compose(uint64_t a, uint64_t b) {
  const uint64_t m = b >> 32;
  const uint64_t c = m * (a & 0xffffffff) + b;
  return ((a >> 32) * m) << 32 | (c & 0xffffffff);
}

// The inputs are combined in the order of the ranks and, within a rank, of its inputs.
void not_commutative(World& world) {
  const auto context = world.join();
  for (const auto algorithm : {nezha::Algorithm::kAuto, nezha::Algorithm::kHalvingDoubling}) {
    for (const size_t elements : kSizes) {
      std::vector<uint64_t> first(elements), second(elements), expected(elements);
      for (size_t i = 0; i < elements; ++i) {
        first[i] = line(world.rank, 0, i);
        second[i] = line(world.rank, 1, i);
        expected[i] = compose(line(0, 0, i), line(0, 1, i));
        for (int rank = 1; rank < world.size; ++rank) {
          expected[i] = compose(compose(expected[i], line(rank, 0, i)), line(rank, 1, i));
        }
      }
      nezha::AllreduceOptions options(context);
      options.setInputs(std::vector<uint64_t*>{first.data(), second.data()}, elements);
      options.setOutput(first.data(), elements);
      options.setAlgorithm(algorithm);
      options.setCommutative(false);
      options.setReduceFunction([](void* out, const void* a, const void* b, size_t count) {
        for (size_t i = 0; i < count; ++i) {
          static_cast<uint64_t*>(out)[i] =
              compose(static_cast<const uint64_t*>(a)[i], static_cast<const uint64_t*>(b)[i]);
        }
      });
      nezha::allreduce(options);
      check(first == expected, std::to_string(elements) + " elements are combined out of order");
    }
  }
}

}  // namespace

Scenarios of_reductions() {
  return {{"several-inputs-and-outputs", several_inputs_and_outputs},
          {"not-commutative", not_commutative}};
}

}  // namespace nezha::scenarios
