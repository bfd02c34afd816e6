// SPDX-License-Identifier: Apache-2.0
#include "cluster/gloo/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>

namespace nezha::gloo_cases {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

template <typename T>
T to(const std::string& text) {
  std::istringstream stream(text);
  T value{};
  stream >> value;
  if (!stream || stream.peek() != EOF) throw std::invalid_argument(text);
  return value;
}

struct Option {
  std::string name;
  std::string help;
  std::function<void(const std::string&)> set;
};

std::vector<Option> option_table(Options& o) {
  using Text = const std::string&;
  return {
      {"threads", "all ranks are threads of this process; without it, RANK of SIZE is this process",
       [&o](Text v) { o.threads = to<int>(v); }},
      {"store", "the directory where the processes meet", [&o](Text v) { o.store = v; }},
      {"interface", "of Gloo's own tcp device (lo)", [&o](Text v) { o.interface = v; }},
      {"device-library", "a library whose nezha_gloo_device() makes the device instead",
       [&o](Text v) { o.device_library = v; }},
      {"rails", "what that function is told: URI,...", [&o](Text v) { o.rails = v; }},
      {"cases", "a regular expression: only these cases", [&o](Text v) { o.cases = v; }},
      {"list", "1: print the names of the cases", [&o](Text v) { o.list = to<int>(v) != 0; }},
      {"max-bytes", "the largest buffer of a rank (1048576)",
       [&o](Text v) { o.max_bytes = to<size_t>(v); }},
      {"timeout", "ms, of what ought to succeed (20000)",
       [&o](Text v) { o.timeout = std::chrono::milliseconds(to<int>(v)); }},
      {"seed", "of what is drawn (1)", [&o](Text v) { o.seed = to<uint32_t>(v); }},
      {"load", "instead of the cases, one operation after the other until this file is there",
       [&o](Text v) { o.load = v; }},
      {"operations", "of the load, in turn: ring, bcube, alltoall, broadcast, halving-doubling",
       [&o](Text v) { o.operations = split(v); }},
      {"elements", "floats of each rank in an operation of the load (1048576)",
       [&o](Text v) { o.elements = to<size_t>(v); }},
  };
}

[[noreturn]] void usage(const std::vector<Option>& table, FILE* stream, int status) {
  std::fprintf(stream,
               "Uses Gloo over a device, and prints a JSON line for each case's outcome.\n");
  for (const auto& option : table) {
    std::fprintf(stream, "  --%-14s %s\n", option.name.c_str(), option.help.c_str());
  }
  std::exit(status);
}

void find_ranks(Options& options) {
  if (options.threads > 0) {
    options.size = options.threads;
    return;
  }
  const char* rank = std::getenv("RANK");
  const char* size = std::getenv("SIZE");
  if (rank == nullptr || size == nullptr) throw std::invalid_argument("RANK, SIZE");
  options.rank = to<int>(rank);
  options.size = to<int>(size);
  if (options.store.empty()) throw std::invalid_argument("--store");
}

}  // namespace

Options parse(int argc, char** argv) {
  Options options;
  const auto table = option_table(options);
  if (argc == 2 && std::string(argv[1]) == "--help") usage(table, stdout, 0);
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string word = argv[i];
      const auto option = std::find_if(table.begin(), table.end(),
                                       [&](const auto& o) { return "--" + o.name == word; });
      if (option == table.end() || i + 1 == argc) throw std::invalid_argument(word);
      option->set(argv[i + 1]);
    }
    find_ranks(options);
  } catch (const std::logic_error& error) {
    std::fprintf(stderr, "gloo_cases: bad: %s\n", error.what());
    usage(table, stderr, 2);
  }
  return options;
}

}  // namespace nezha::gloo_cases
