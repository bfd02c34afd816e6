// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as the messages and store records of another rank's nezha-check: accepted input
// is within its limits, and is the same after another round trip.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "check/greeting.h"
#include "check/measurement.h"

namespace nezha::check {
namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

template <typename Bytes, typename Decode>
void check_greeting(const std::string& input, Decode decode) {
  Bytes bytes{};
  std::memcpy(bytes.data(), input.data(), std::min(input.size(), bytes.size()));
  const auto decoded = decode(bytes);
  if (decoded) expect(encode(*decoded) == bytes);
}

// Two ranks that have one rail.
std::vector<RankFacts> two_ranks() {
  RankFacts facts;
  facts.rails.emplace_back();
  return {facts, facts};
}

void check_texts(const std::string& text) {
  const std::vector<RankFacts> ranks = two_ranks();
  try {
    const RankFacts facts = decode_facts(text);
    expect(encode(decode_facts(encode(facts))) == encode(facts));
  } catch (const std::runtime_error&) {
  }
  try {
    for (const Reach& reach : decode_reaches(text, 0, ranks)) {
      expect(reach.peer >= 0 && reach.peer <= 1 && reach.rail == 0 && reach.peer_rail == 0);
    }
  } catch (const std::runtime_error&) {
  }
  try {
    for (const Path& path : decode_paths(text, ranks)) {
      expect(path.from >= 0 && path.from <= 1 && path.to >= 0 && path.to <= 1);
      expect(path.rail == 0 && path.to_rail == 0 && path.gbps_there >= -1);
    }
  } catch (const std::runtime_error&) {
  }
}

}  // namespace
}  // namespace nezha::check

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace check = nezha::check;
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'h') check::check_greeting<check::HelloBytes>(input, check::decode_hello);
  if (data[0] == 'w') check::check_greeting<check::WelcomeBytes>(input, check::decode_welcome);
  if (data[0] == 't') check::check_texts(input);
  return 0;
}
