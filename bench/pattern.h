// Inputs of which a wrong sum can be told from a right one.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace nezha::bench {

class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Fills in a rank's input of an operation. The values are small whole numbers, so that their sum
// is exact in any order. They depend on rank, element and operation, so that an element that is
// shifted, stale, doubled or missing shows.
void fill_input(std::vector<float>& input, int rank, uint64_t operation);

// Checks every element of the sum over ranks 0 .. size-1. Throws WrongResult.
void check_sum(const std::vector<float>& sum, int size, uint64_t operation);

// Likewise, that it is that rank's input.
void check_copy(const std::vector<float>& copy, int rank, uint64_t operation);

}  // namespace nezha::bench
