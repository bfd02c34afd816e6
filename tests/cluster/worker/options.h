// SPDX-License-Identifier: Apache-2.0
// The command line of the worker.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "nezha/allreduce.h"
#include "nezha/context.h"

namespace nezha::worker {

struct Span {  // in milliseconds
  int least = 0;
  int most = 0;
};

struct Late {
  int rank = -1;  // -1: no rank
  int operation = 0;
  int ms = 0;
};

enum class Place { kOut, kIn, kBoth };

enum class Collective {
  kAllreduce,
  kReduce,
  kBroadcast,
  kBarrier,
  kAllgather,
  kAllgatherv,
  kReduceScatter,
  kReduceScatterv,
  kAlltoall,
  kAlltoallv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kSendRecv,  // to the next rank, and from the previous one
};

struct Options {
  int rank = 0;
  int size = 0;
  std::string store;
  nezha::ContextOptions context;
  Collective collective = Collective::kAllreduce;
  std::string shift_root;
  std::optional<nezha::Algorithm> algorithm;
  bool reproducible = false;
  std::vector<size_t> elements;
  std::vector<nezha::DataType> types = {nezha::DataType::kFloat32};
  std::vector<std::string> reductions = {"sum"};
  int operations = 0;  // 0: one of each size, type and reduction
  std::string until;
  std::string stay;
  std::string settle;
  int threads = 1;
  Place place = Place::kBoth;
  bool floats = false;
  bool remaps = false;
  Span delay;
  Late late;
  Span pause;
  uint32_t seed = 1;
  int report = 1;
};

template <typename T>
T choose(const std::map<std::string, T>& known, const std::string& name) {
  const auto entry = known.find(name);
  if (entry == known.end()) throw std::invalid_argument(name);
  return entry->second;
}

// All values that have a name.
template <typename Enum>
std::map<std::string, Enum> by_name() {
  std::map<std::string, Enum> known;
  for (int number = 0; number < 256; ++number) {
    const auto value = static_cast<Enum>(number);
    if (const char* name = nameOf(value)) known[name] = value;
  }
  return known;
}

// "custom" is a sum. "throwing" is a sum, too, but throws at rank 1.
inline const std::string kThrowing = "throwing";

// If the line is bad, prints the usage and ends the process. RANK and SIZE in the environment give
// the rank and the number of ranks.
Options parse(int argc, char** argv);

}  // namespace nezha::worker
