// SPDX-License-Identifier: Apache-2.0
// Processes that end without leaving their contexts.

#include <cstdlib>
#include <string>

#include "cluster/scenarios/scenario.h"
#include "nezha/errors.h"

namespace nezha::scenarios {
namespace {

// A process calls exit() inside a reduction function, which nezha calls. The process ends
// nevertheless, and the other rank learns of it.
void exit_in_a_function(World& world) {
  const Context context = world.join();
  check_works(context, 1);
  Vector vector(world, 1000, 2);
  nezha::AllreduceOptions options = vector.options(context, 1);
  if (world.rank == 1) {
    options.setReduceFunction([](void*, const void*, const void*, size_t) { std::exit(0); });
    nezha::allreduce(options);
    check(false, "the function did not end the process");
  }
  options.setReduceFunction([](void* sum, const void* a, const void* b, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      static_cast<float*>(sum)[i] =
          static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
    }
  });
  const std::string text = thrown<nezha::IoError>([&] {
    for (int i = 0; i < 2; ++i) nezha::allreduce(options);
  });
  check_mentions(text, "rank 1 of 2");
}

}  // namespace

Scenarios of_leaving() { return {{"exit-in-a-function", exit_in_a_function}}; }

}  // namespace nezha::scenarios
