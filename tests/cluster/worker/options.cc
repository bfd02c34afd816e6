// SPDX-License-Identifier: Apache-2.0
#include "cluster/worker/options.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>

namespace nezha::worker {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
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

template <typename T>
std::vector<T> to_list(const std::string& text, char separator = ',') {
  std::vector<T> list;
  for (const auto& part : split(text, separator)) list.push_back(to<T>(part));
  return list;
}

Span to_span(const std::string& text) {
  const auto ends = to_list<int>(text, ':');
  return {ends.at(0), ends.at(1)};
}

struct Option {
  std::string name;
  std::string help;
  std::function<void(const std::string&)> set;
};

const std::map<std::string, Collective> kCollectives = {
    {"allreduce", Collective::kAllreduce},
    {"reduce", Collective::kReduce},
    {"broadcast", Collective::kBroadcast},
    {"barrier", Collective::kBarrier},
    {"allgather", Collective::kAllgather},
    {"allgatherv", Collective::kAllgatherv},
    {"reduce_scatter", Collective::kReduceScatter},
    {"reduce_scatterv", Collective::kReduceScatterv},
    {"alltoall", Collective::kAlltoall},
    {"alltoallv", Collective::kAlltoallv},
    {"gather", Collective::kGather},
    {"gatherv", Collective::kGatherv},
    {"scatter", Collective::kScatter},
    {"scatterv", Collective::kScatterv},
    {"send_recv", Collective::kSendRecv}};
const std::map<std::string, nezha::Plan> kPlans = {
    {"stripe", nezha::Plan::kStripe}, {"slice", nezha::Plan::kSlice}, {"auto", nezha::Plan::kAuto}};
const std::map<std::string, nezha::Algorithm> kAlgorithms = {
    {"auto", nezha::Algorithm::kAuto},
    {"ring", nezha::Algorithm::kRing},
    {"recursive-doubling", nezha::Algorithm::kRecursiveDoubling},
    {"halving-doubling", nezha::Algorithm::kHalvingDoubling},
    {"direct", nezha::Algorithm::kDirect},
    {"bcube", nezha::Algorithm::kBcube},
    {"bruck", nezha::Algorithm::kBruck},
    {"pairwise", nezha::Algorithm::kPairwise},
    {"tree", nezha::Algorithm::kTree}};

std::vector<std::string> to_reductions(const std::string& text) {
  auto names = split(text, ',');
  for (const auto& name : names) {
    if (name != kThrowing) choose(by_name<nezha::ReduceOperation>(), name);
  }
  return names;
}

std::vector<nezha::DataType> to_types(const std::string& text) {
  std::vector<nezha::DataType> types;
  for (const auto& name : split(text, ','))
    types.push_back(choose(by_name<nezha::DataType>(), name));
  return types;
}

const std::map<std::string, Place> kPlaces = {
    {"out", Place::kOut}, {"in", Place::kIn}, {"both", Place::kBoth}};

std::vector<Option> option_table(Options& o) {
  using Text = const std::string&;
  return {
      {"store", "the rendezvous' directory, or a Redis server's URL",
       [&o](Text v) { o.store = v; }},
      {"rails", "URI,...", [&o](Text v) { o.context.rails = split(v, ','); }},
      {"ports", "FIRST-LAST, to listen at", [&o](Text v) { o.context.ports = v; }},
      {"plan", "stripe, slice, auto", [&o](Text v) { o.context.plan = choose(kPlans, v); }},
      {"shares", "of the slices", [&o](Text v) { o.context.shares = to_list<double>(v); }},
      {"collective", "allreduce, reduce, broadcast (each rank in turn is the root), barrier",
       [&o](Text v) { o.collective = choose(kCollectives, v); }},
      {"shift-root", "from when this file is there, roots are the next ranks",
       [&o](Text v) { o.shift_root = v; }},
      {"algorithm", "auto, ring, recursive-doubling, halving-doubling, direct, bcube",
       [&o](Text v) { o.algorithm = choose(kAlgorithms, v); }},
      {"reproducible", "1: one order of summation for all sizes and algorithms",
       [&o](Text v) { o.reproducible = to<int>(v) != 0; }},
      {"elements", "the operations' sizes, in turn",
       [&o](Text v) { o.elements = to_list<size_t>(v); }},
      {"type", "the element types, in turn for all sizes (float32)",
       [&o](Text v) { o.types = to_types(v); }},
      {"operation", "sum, ..., custom, throwing: in turn for all sizes and types (sum)",
       [&o](Text v) { o.reductions = to_reductions(v); }},
      {"operations", "how many of each thread (default: one of each size, type and operation)",
       [&o](Text v) { o.operations = to<int>(v); }},
      {"until", "go on until rank 0 sees this file (one thread)", [&o](Text v) { o.until = v; }},
      {"stay", "after an error, do not end before this file is there (a minute at most)",
       [&o](Text v) { o.stay = v; }},
      {"settle", "tell of the balance after the last operation until this file is there (likewise)",
       [&o](Text v) { o.settle = v; }},
      {"threads", "on one context, with as many tags, in an order of the rank's own (1)",
       [&o](Text v) { o.threads = to<int>(v); }},
      {"place", "out, in (the output is the input), both (each size in turn; the default)",
       [&o](Text v) { o.place = choose(kPlaces, v); }},
      {"float", "1: any floats, and \"done\" has a hash of the result's bits",
       [&o](Text v) { o.floats = to<int>(v) != 0; }},
      {"remap", "1: other pages are mapped at the buffers' addresses before each operation",
       [&o](Text v) { o.remaps = to<int>(v) != 0; }},
      {"delay", "MIN:MAX ms before joining", [&o](Text v) { o.delay = to_span(v); }},
      {"late", "RANK:OPERATION:MS: this rank sleeps before this operation",
       [&o](Text v) {
         const auto parts = to_list<int>(v, ':');
         o.late = {parts.at(0), parts.at(1), parts.at(2)};
       }},
      {"pause", "MIN:MAX ms before each operation", [&o](Text v) { o.pause = to_span(v); }},
      {"timeout", "ms", [&o](Text v) { o.context.timeout = milliseconds(to<int>(v)); }},
      {"seed", "of what is drawn (1)", [&o](Text v) { o.seed = to<uint32_t>(v); }},
      {"report", "N: each N-th operation is reported (1)", [&o](Text v) { o.report = to<int>(v); }},
  };
}

[[noreturn]] void usage(const std::vector<Option>& table) {
  for (const auto& option : table) {
    std::fprintf(stderr, "  --%-12s %s\n", option.name.c_str(), option.help.c_str());
  }
  std::exit(2);
}

}  // namespace

Options parse(int argc, char** argv) {
  Options options;
  const auto table = option_table(options);
  try {
    for (int i = 1; i < argc; i += 2) {
      const std::string word = argv[i];
      const auto option = std::find_if(table.begin(), table.end(),
                                       [&](const auto& o) { return "--" + o.name == word; });
      if (option == table.end() || i + 1 == argc) throw std::invalid_argument(word);
      option->set(argv[i + 1]);
    }
    const char* rank = std::getenv("RANK");
    const char* size = std::getenv("SIZE");
    if (rank == nullptr || size == nullptr) throw std::invalid_argument("RANK, SIZE");
    options.context.rank = options.rank = to<int>(rank);
    options.context.size = options.size = to<int>(size);
    if (options.elements.empty() || options.store.empty()) {
      throw std::invalid_argument("--elements, --store");
    }
    if (options.threads > 1 && !options.until.empty()) throw std::invalid_argument("--until");
    const bool is_usual =
        options.types == Options().types && options.reductions == Options().reductions;
    if (options.floats && !is_usual)
      throw std::invalid_argument("--float with --type, --operation");
  } catch (const std::logic_error& error) {
    std::fprintf(stderr, "worker: bad: %s\n", error.what());
    usage(table);
  }
  if (options.operations == 0) {
    options.operations = static_cast<int>(options.elements.size() * options.types.size() *
                                          options.reductions.size());
  }
  return options;
}

}  // namespace nezha::worker
