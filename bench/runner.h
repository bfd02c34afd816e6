// What a library must offer to be measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nezha::bench {

// One thread's collective, ready to be repeated: each call of run() is one operation.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run() = 0;
};

// How many bytes a rail carried.
struct RailBytes {
  std::string name;
  double bytes = 0;
};

// A group of ranks that is connected by the library under test.
class Runner {
 public:
  virtual ~Runner() = default;

  // The float32 sum over all ranks, from `input` to `output`, which may be the same. Operations
  // of different tags may run at the same time.
  virtual std::unique_ptr<Operation> prepare_allreduce(float* input, float* output, size_t elements,
                                                       uint32_t tag) = 0;

  // What this rank has sent so far, by rail, always in the same order.
  virtual std::vector<RailBytes> bytes_sent() const = 0;
};

}  // namespace nezha::bench
