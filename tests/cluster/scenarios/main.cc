// SPDX-License-Identifier: Apache-2.0
// One rank of a scenario: a short program that uses the public API; each rank plays its part in a
// process of its own. Usage: `scenarios NAME STORE RAIL,...` with RANK and SIZE in the environment.
// Exit status 0 if everything went as expected.
#include <cstdio>
#include <exception>

#include "cluster/scenarios/scenario.h"

namespace {

using nezha::scenarios::Scenarios;
using nezha::scenarios::World;

Scenarios all() {
  namespace from = nezha::scenarios;
  Scenarios scenarios;
  for (const auto& some :
       {from::of_handles(), from::of_reductions(), from::of_arguments(), from::of_joining(),
        from::of_shortage(), from::of_several_contexts(), from::of_forks(), from::of_leaving(),
        from::of_rooted_collectives(), from::of_blocks(), from::of_point_to_point()}) {
    scenarios.insert(some.begin(), some.end());
  }
  return scenarios;
}

}  // namespace

int main(int argc, char** argv) {
  const Scenarios scenarios = all();
  const auto scenario = argc == 4 ? scenarios.find(argv[1]) : scenarios.end();
  if (scenario == scenarios.end()) {
    for (const auto& [name, run] : scenarios) std::puts(name.c_str());
    return argc == 1 ? 0 : 2;
  }
  try {
    World world(argv[2], argv[3]);
    scenario->second(world);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
