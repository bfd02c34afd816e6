// SPDX-License-Identifier: Apache-2.0
// Gloo's collectives that are functions with options. Each result is compared with the ranks'
// inputs.
#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>
#include <gloo/types.h>

#include <algorithm>
#include <set>

#include "../interop/horovod/headers/gloo/gatherv.h"  // libgloo-dev lacks it
#include "cluster/gloo/cases.h"
#include "cluster/gloo/data.h"

namespace nezha::gloo_cases {
namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;
using Function = void (*)(void*, const void*, const void*, size_t);

std::set<int> roots(const Rank& rank) { return {0, 1 % rank.size, rank.size / 2, rank.size - 1}; }

// ---- Reductions --------------------------------------------------------------------------------

struct Reduction {
  size_t elements = 0;
  size_t inputs = 1;
  bool in_place = false;
  size_t segment = 0;  // 0: the default
};

// The reduction, at one index, of all inputs of all ranks.
template <typename T>
T reduced(const std::vector<Values<T>>& inputs, Function function, size_t index) {
  T total = inputs[0][index];
  for (size_t i = 1; i < inputs.size(); ++i) {
    const T value = inputs[i][index];
    function(&total, &total, &value, 1);
  }
  return total;
}

template <typename T>
std::vector<Values<T>> inputs_of_all(const Rank& rank, uint32_t tag, size_t inputs) {
  std::vector<Values<T>> all;
  for (size_t i = 0; i < inputs * static_cast<size_t>(rank.size); ++i) {
    all.push_back(rank.values<T>(tag, static_cast<int>(i)));
  }
  return all;
}

template <typename T>
std::vector<T*> pointers(std::vector<std::vector<T>>& vectors) {
  std::vector<T*> list;
  for (auto& vector : vectors) list.push_back(vector.data());
  return list;
}

template <typename T>
void allreduce(Rank& rank, Algorithm algorithm, Function function, const Reduction& shape) {
  const uint32_t tag = rank.tag();
  const auto all = inputs_of_all<T>(rank, tag, shape.inputs);
  std::vector<std::vector<T>> in;
  for (size_t i = 0; i < shape.inputs; ++i) {
    in.push_back(all[static_cast<size_t>(rank.rank) * shape.inputs + i].first(shape.elements));
  }
  std::vector<std::vector<T>> out(shape.inputs, std::vector<T>(shape.elements));
  if (shape.in_place) out = in;
  gloo::AllreduceOptions options(rank.context());
  options.setAlgorithm(algorithm);
  if (!shape.in_place) options.setInputs(pointers(in), shape.elements);
  options.setOutputs(pointers(out), shape.elements);
  options.setReduceFunction(function);
  options.setTag(tag);
  if (shape.segment != 0) options.setMaxSegmentSize(shape.segment);
  gloo::allreduce(options);
  for (const auto& each : out) {
    check<T>("the allreduce", each, [&](size_t i) { return reduced(all, function, i); });
  }
}

template <typename T>
void reduce(Rank& rank, int root, Function function, const Reduction& shape) {
  const uint32_t tag = rank.tag();
  const auto all = inputs_of_all<T>(rank, tag, 1);
  auto in = all[static_cast<size_t>(rank.rank)].first(shape.elements);
  std::vector<T> out(shape.elements);
  if (shape.in_place) out = in;
  gloo::ReduceOptions options(rank.context());
  if (!shape.in_place) options.setInput(in.data(), shape.elements);
  options.setOutput(out.data(), shape.elements);
  options.setRoot(root);
  options.setReduceFunction(function);
  options.setTag(tag);
  if (shape.segment != 0) options.setMaxSegmentSize(shape.segment);
  gloo::reduce(options);
  if (rank.rank != root) return;
  check<T>("the reduce", out, [&](size_t i) { return reduced(all, function, i); });
}

struct Named {
  std::string name;
  Function function;
};

template <typename T>
std::vector<Named> all_functions() {
  return {{"sum", &gloo::sum<T>}, {"min", &gloo::min<T>}, {"max", &gloo::max<T>}};
}

template <typename T>
void add_reductions(const std::string& type, const std::vector<Named>& functions,
                    const Reduction& shape, Cases& cases) {
  std::string tail = " " + type + " " + std::to_string(shape.elements);
  if (shape.inputs > 1) tail += " of " + std::to_string(shape.inputs);
  if (shape.in_place) tail += " in place";
  if (shape.segment != 0) tail += " by " + std::to_string(shape.segment);
  for (const auto& [name, algorithm] :
       {std::pair("ring", Algorithm::RING), std::pair("bcube", Algorithm::BCUBE)}) {
    for (const auto& [what, function] : functions) {
      cases.push_back(
          {std::string("allreduce ") + name + " " + what + tail,
           [=, f = function, a = algorithm](Rank& rank) { allreduce<T>(rank, a, f, shape); }});
    }
  }
  if (shape.inputs > 1) return;
  for (const auto& [what, function] : functions) {
    cases.push_back({"reduce " + what + tail, [shape, f = function](Rank& rank) {
                       for (const int root : roots(rank)) reduce<T>(rank, root, f, shape);
                     }});
  }
}

// ---- Blocks ------------------------------------------------------------------------------------

// The number of elements of a rank if each rank has a different number; some have none.
size_t uneven(size_t elements, int of) {
  return elements * static_cast<size_t>(of % 4) / 2 + elements % 3;
}

void allgather(Rank& rank, size_t elements) {
  const uint32_t tag = rank.tag();
  auto in = rank.values<uint32_t>(tag, rank.rank).first(elements);
  std::vector<uint32_t> out(elements * static_cast<size_t>(rank.size));
  gloo::AllgatherOptions options(rank.context());
  options.setInput(in.data(), elements);
  options.setOutput(out.data(), out.size());
  options.setTag(tag);
  gloo::allgather(options);
  for (int of = 0; of < rank.size; ++of) {
    const auto wanted = rank.values<uint32_t>(tag, of);
    check("the block of rank " + std::to_string(of),
          out.data() + static_cast<size_t>(of) * elements, elements,
          [&](size_t i) { return wanted[i]; });
  }
}

void allgatherv(Rank& rank, size_t elements) {
  const uint32_t tag = rank.tag();
  std::vector<size_t> counts;
  size_t total = 0;
  for (int of = 0; of < rank.size; ++of) total += counts.emplace_back(uneven(elements, of));
  auto in = rank.values<uint32_t>(tag, rank.rank).first(counts[static_cast<size_t>(rank.rank)]);
  std::vector<uint32_t> out(total);
  gloo::AllgathervOptions options(rank.context());
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), counts);
  options.setTag(tag);
  gloo::allgatherv(options);
  size_t offset = 0;
  for (int of = 0; of < rank.size; ++of) {
    const auto wanted = rank.values<uint32_t>(tag, of);
    const size_t count = counts[static_cast<size_t>(of)];
    check("the block of rank " + std::to_string(of), out.data() + offset, count,
          [&](size_t i) { return wanted[i]; });
    offset += count;
  }
}

// The block that one rank has for another.
Values<uint32_t> block(const Rank& rank, uint32_t tag, int from, int to) {
  return rank.values<uint32_t>(tag, from * rank.size + to);
}

void alltoall(Rank& rank, size_t elements) {
  const uint32_t tag = rank.tag();
  std::vector<uint32_t> in;
  for (int to = 0; to < rank.size; ++to) {
    const auto one = block(rank, tag, rank.rank, to).first(elements);
    in.insert(in.end(), one.begin(), one.end());
  }
  std::vector<uint32_t> out(in.size());
  gloo::AlltoallOptions options(rank.context());
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), out.size());
  options.setTag(tag);
  gloo::alltoall(options);
  for (int of = 0; of < rank.size; ++of) {
    const auto wanted = block(rank, tag, of, rank.rank);
    check("the block of rank " + std::to_string(of),
          out.data() + static_cast<size_t>(of) * elements, elements,
          [&](size_t i) { return wanted[i]; });
  }
}

void alltoallv(Rank& rank, size_t elements) {
  const uint32_t tag = rank.tag();
  std::vector<int64_t> send_counts;
  std::vector<int64_t> receive_counts;
  std::vector<uint32_t> in;
  size_t received = 0;
  for (int peer = 0; peer < rank.size; ++peer) {
    const auto one =
        block(rank, tag, rank.rank, peer).first(uneven(elements, rank.rank + peer * 3));
    in.insert(in.end(), one.begin(), one.end());
    send_counts.push_back(static_cast<int64_t>(one.size()));
    const size_t count = uneven(elements, peer + rank.rank * 3);
    receive_counts.push_back(static_cast<int64_t>(count));
    received += count;
  }
  std::vector<uint32_t> out(received);
  gloo::AlltoallvOptions options(rank.context());
  options.setInput(in.data(), send_counts);
  options.setOutput(out.data(), receive_counts);
  options.setTag(tag);
  gloo::alltoallv(options);
  size_t offset = 0;
  for (int of = 0; of < rank.size; ++of) {
    const auto wanted = block(rank, tag, of, rank.rank);
    const auto count = static_cast<size_t>(receive_counts[static_cast<size_t>(of)]);
    check("the block of rank " + std::to_string(of), out.data() + offset, count,
          [&](size_t i) { return wanted[i]; });
    offset += count;
  }
}

// ---- With a root -------------------------------------------------------------------------------

void broadcast(Rank& rank, int root, size_t elements) {
  const uint32_t tag = rank.tag();
  const auto wanted = rank.values<uint32_t>(tag, root);
  auto in = wanted.first(rank.rank == root ? elements : 0);
  std::vector<uint32_t> out(elements);
  gloo::BroadcastOptions options(rank.context());
  if (rank.rank == root) options.setInput(in.data(), elements);
  options.setOutput(out.data(), elements);
  options.setRoot(root);
  options.setTag(tag);
  gloo::broadcast(options);
  check("the broadcast", out, [&](size_t i) { return wanted[i]; });
}

void gather(Rank& rank, int root, size_t elements) {
  const uint32_t tag = rank.tag();
  auto in = rank.values<uint32_t>(tag, rank.rank).first(elements);
  std::vector<uint32_t> out(rank.rank == root ? elements * static_cast<size_t>(rank.size) : 0);
  gloo::GatherOptions options(rank.context());
  options.setInput(in.data(), elements);
  if (rank.rank == root) options.setOutput(out.data(), out.size());
  options.setRoot(root);
  options.setTag(tag);
  gloo::gather(options);
  if (rank.rank != root) return;
  for (int of = 0; of < rank.size; ++of) {
    const auto wanted = rank.values<uint32_t>(tag, of);
    check("the block of rank " + std::to_string(of),
          out.data() + static_cast<size_t>(of) * elements, elements,
          [&](size_t i) { return wanted[i]; });
  }
}

// Except for the root, ranks know only their own count.
void gatherv(Rank& rank, int root, size_t elements) {
  const uint32_t tag = rank.tag();
  std::vector<size_t> counts(static_cast<size_t>(rank.size));
  size_t total = 0;
  for (int of = 0; of < rank.size; ++of) {
    if (rank.rank != root && of != rank.rank) continue;
    total += counts[static_cast<size_t>(of)] = uneven(elements, of);
  }
  auto in = rank.values<uint32_t>(tag, rank.rank).first(counts[static_cast<size_t>(rank.rank)]);
  std::vector<uint32_t> out(rank.rank == root ? total : 0);
  gloo::GathervOptions options(rank.context());
  options.setInput(in.data(), in.size());
  options.setOutput(out.data(), counts);
  options.setRoot(root);
  options.setTag(tag);
  options.setTimeout(rank.options.timeout);
  gloo::gatherv(options);
  if (rank.rank != root) return;
  size_t offset = 0;
  for (int of = 0; of < rank.size; ++of) {
    const auto wanted = rank.values<uint32_t>(tag, of);
    const size_t count = counts[static_cast<size_t>(of)];
    check("the block of rank " + std::to_string(of), out.data() + offset, count,
          [&](size_t i) { return wanted[i]; });
    offset += count;
  }
}

void scatter(Rank& rank, int root, size_t elements) {
  const uint32_t tag = rank.tag();
  std::vector<std::vector<uint32_t>> in;
  for (int to = 0; rank.rank == root && to < rank.size; ++to) {
    in.push_back(block(rank, tag, root, to).first(elements));
  }
  std::vector<uint32_t> out(elements);
  gloo::ScatterOptions options(rank.context());
  if (rank.rank == root) options.setInputs(pointers(in), elements);
  options.setOutput(out.data(), elements);
  options.setRoot(root);
  options.setTag(tag);
  gloo::scatter(options);
  const auto wanted = block(rank, tag, root, rank.rank);
  check("the scatter", out, [&](size_t i) { return wanted[i]; });
}

// No rank leaves a barrier before the last one has entered; the ranks count in turns.
void barriers(Rank& rank) {
  for (int late = 0; late < rank.size; ++late) {
    gloo::BarrierOptions options(rank.context());
    options.setTag(rank.tag());
    gloo::barrier(options);
  }
}

// ---- The list ----------------------------------------------------------------------------------

std::vector<size_t> sizes(const Options& options, size_t element, size_t of_each) {
  std::vector<size_t> list;
  for (const size_t count :
       {0U, 1U, 2U, 3U, 5U, 17U, 1000U, 4099U, 65537U, 262144U, 4194307U, 16777216U}) {
    if (count * element * of_each <= options.max_bytes) list.push_back(count);
  }
  return list;
}

// Sums of every size, and every function for every type.
void add_all_reductions(const Options& options, Cases& cases) {
  const std::vector<Named> sum = {{"sum", &gloo::sum<float>}};
  for (const size_t elements : sizes(options, sizeof(float), 1)) {
    add_reductions<float>("float", sum, {elements, 1, false, 0}, cases);
    add_reductions<float>("float", sum, {elements, 1, true, 0}, cases);
  }
  add_reductions<float>("float", sum, {1000, 3, false, 0}, cases);
  add_reductions<float>("float", sum, {1000, 3, true, 0}, cases);
  for (const size_t segment : {8U, 128U, 1024U}) {
    add_reductions<float>("float", sum, {1021, 1, false, segment}, cases);
  }
  const auto add = [&cases](const std::string& type, auto zero, bool in_place) {
    using T = decltype(zero);
    add_reductions<T>(type, all_functions<T>(), {1021, 1, in_place, 0}, cases);
  };
  add("double", double{}, false);
  add("int8", int8_t{}, false);
  add("uint8", uint8_t{}, true);
  add("int32", int32_t{}, false);
  add("int64", int64_t{}, true);
  add("uint64", uint64_t{}, false);
  add("float16", gloo::float16{}, false);
}

}  // namespace

void add_collectives(const Options& options, Cases& cases) {
  add_all_reductions(options, cases);
  const auto of_each = static_cast<size_t>(options.size);
  for (const size_t elements : sizes(options, sizeof(uint32_t), of_each)) {
    const std::string tail = " " + std::to_string(elements);
    if (elements > 0) {  // Gloo's allgather of zero elements divides by zero.
      cases.push_back({"allgather" + tail, [=](Rank& rank) { allgather(rank, elements); }});
    }
    cases.push_back({"allgatherv" + tail, [=](Rank& rank) { allgatherv(rank, elements); }});
    cases.push_back({"alltoall" + tail, [=](Rank& rank) { alltoall(rank, elements); }});
    cases.push_back({"alltoallv" + tail, [=](Rank& rank) { alltoallv(rank, elements); }});
    cases.push_back({"broadcast" + tail, [=](Rank& rank) {
                       for (const int root : roots(rank)) broadcast(rank, root, elements);
                     }});
    cases.push_back({"gather" + tail, [=](Rank& rank) {
                       for (const int root : roots(rank)) gather(rank, root, elements);
                     }});
    cases.push_back({"gatherv" + tail, [=](Rank& rank) {
                       for (const int root : roots(rank)) gatherv(rank, root, elements);
                     }});
    cases.push_back({"scatter" + tail, [=](Rank& rank) {
                       for (const int root : roots(rank)) scatter(rank, root, elements);
                     }});
  }
  cases.push_back({"barrier", barriers});
}

}  // namespace nezha::gloo_cases
