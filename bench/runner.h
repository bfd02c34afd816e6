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

  // One of the program's collectives (Dialect::collectives), of float32 and, where it reduces, the
  // sum, from `input` to `output`, which may be the same. The root is rank 0. Operations of
  // different tags may run at the same time.
  virtual std::unique_ptr<Operation> prepare(const std::string& collective, float* input,
                                             float* output, size_t elements, uint32_t tag) = 0;

  // What this rank has sent so far, by rail, always in the same order.
  virtual std::vector<RailBytes> bytes_sent() const = 0;

  // What rank 0 has learned of messages of that size, such as "converged eth0 70.1% eth1 29.9%";
  // empty if nothing.
  virtual std::string learned(size_t /*bytes*/) const { return ""; }
};

}  // namespace nezha::bench
