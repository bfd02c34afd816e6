// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/gatherv.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/types.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace {

using Function = void (*)(void*, const void*, const void*, size_t);

void require(bool is_right, const std::string& what) {
  if (!is_right) throw std::runtime_error("wrong: " + what);
}

// The value of a rank's element. Products over 4 ranks are exact in every type.
int value(int rank, size_t index) { return static_cast<int>((index * 7 + rank * 5) % 3) + 1; }

template <typename T>
void allreduce(const Context& context, T* data, size_t count, Function function) {
  gloo::AllreduceOptions options(context);
  options.setOutput(data, count);
  options.setReduceFunction(gloo::AllreduceOptions::Func(function));
  gloo::allreduce(options);
}

template <typename T>
void check_allreduce(const Context& context, size_t count, Function function,
                     const std::string& what) {
  std::unique_ptr<T[]> data(new T[count]);
  std::unique_ptr<T[]> wanted(new T[count]);
  for (size_t i = 0; i < count; ++i) {
    data[i] = static_cast<T>(value(context->rank, i));
    wanted[i] = static_cast<T>(value(0, i));
    for (int rank = 1; rank < context->size; ++rank) {
      const T next = static_cast<T>(value(rank, i));
      function(&wanted[i], &wanted[i], &next, 1);
    }
  }
  allreduce(context, data.get(), count, function);
  for (size_t i = 0; i < count; ++i) require(data[i] == wanted[i], what);
}

template <typename T>
void check_allreduces(const Context& context, const std::string& type) {
  for (const size_t count : {size_t{1}, size_t{1001}}) {
    check_allreduce<T>(context, count, &gloo::sum<T>, "sum of " + type);
    check_allreduce<T>(context, count, &gloo::product<T>, "product of " + type);
    check_allreduce<T>(context, count, &gloo::min<T>, "minimum of " + type);
    check_allreduce<T>(context, count, &gloo::max<T>, "maximum of " + type);
  }
}

// The functions of Horovod's controller.
template <typename T>
void bit_and(void* out, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i] = static_cast<const T*>(a)[i] & static_cast<const T*>(b)[i];
  }
}

template <typename T>
void bit_or(void* out, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i] = static_cast<const T*>(a)[i] | static_cast<const T*>(b)[i];
  }
}

template <typename T>
void own_sum(void* out, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i] = static_cast<const T*>(a)[i] + static_cast<const T*>(b)[i];
  }
}

void check_bits(const Context& context) {
  check_allreduce<long long>(context, 1, &bit_and<long long>, "and of bits");
  check_allreduce<long long>(context, 3, &bit_or<long long>, "or of bits");
}

// Ranks send their requests to a root and get its answer: first lengths, then texts. Other ranks
// only know their own length, and the root sends itself nothing.
void check_requests(const Context& context, int root, uint32_t tag) {
  const int rank = context->rank;
  const bool is_root = rank == root;
  const auto ranks = static_cast<size_t>(context->size);
  std::string wanted;
  std::string text;
  for (int of = 0; of < context->size; ++of) {
    const std::string one(of == root ? 0 : 10 * (of + 1), static_cast<char>('a' + of));
    if (of == rank) text = one;
    wanted += one;
  }
  int length = static_cast<int>(text.size());
  std::vector<int> lengths(ranks);
  {
    gloo::GatherOptions options(context);
    options.setRoot(root);
    options.setTag(tag);
    options.setInput(&length, 1);
    if (is_root) options.setOutput(lengths.data(), ranks);
    gloo::gather(options);
  }
  std::vector<size_t> counts(ranks);
  counts[rank] = text.size();
  if (is_root) counts.assign(lengths.begin(), lengths.end());
  std::string all(is_root ? wanted.size() : 0, '?');
  {
    gloo::GathervOptions options(context);
    options.setRoot(root);
    options.setTag(tag);
    options.setTimeout(context->getTimeout());
    options.setInput(&text[0], text.size());
    options.setOutput(is_root ? &all[0] : nullptr, counts);
    gloo::gatherv(options);
  }
  if (is_root) require(all == wanted, "gatherv");
  std::string answer = is_root ? wanted : std::string(wanted.size(), '?');
  gloo::BroadcastOptions options(context);
  options.setOutput(reinterpret_cast<uint8_t*>(&answer[0]), answer.size());
  options.setRoot(root);
  options.setTag(tag);
  gloo::broadcast(options);
  require(answer == wanted, "broadcast");
}

void check_allgatherv(const Context& context) {
  std::vector<size_t> counts;
  std::vector<float> wanted;
  size_t offset = 0;
  for (int of = 0; of < context->size; ++of) {
    if (of == context->rank) offset = wanted.size();
    counts.push_back(100 * static_cast<size_t>(of));
    for (size_t i = 0; i < counts.back(); ++i) wanted.push_back(static_cast<float>(value(of, i)));
  }
  std::vector<float> all(wanted.size(), -1);
  for (size_t i = 0; i < counts[context->rank]; ++i) all[offset + i] = wanted[offset + i];
  gloo::AllgathervOptions options(context);
  options.setInput(all.data() + offset, counts[context->rank]);  // in place
  options.setOutput(all.data(), counts);
  gloo::allgatherv(options);
  require(all == wanted, "allgatherv");
}

// Exchanges the lengths with an alltoall, then the blocks with an alltoallv.
void check_alltoalls(const Context& context) {
  std::vector<int32_t> sent;
  std::vector<int32_t> received(context->size, -1);
  for (int to = 0; to < context->size; ++to) sent.push_back(3 * context->rank + to);
  {
    gloo::AlltoallOptions options(context);
    options.setInput(sent.data(), sent.size());
    options.setOutput(received.data(), received.size());
    gloo::alltoall(options);
  }
  std::vector<int64_t> in(std::accumulate(sent.begin(), sent.end(), 0), context->rank);
  std::vector<int64_t> wanted;
  for (int of = 0; of < context->size; ++of) {
    require(received[of] == 3 * of + context->rank, "alltoall");
    wanted.insert(wanted.end(), received[of], of);
  }
  std::vector<int64_t> out(wanted.size(), -1);
  gloo::AlltoallvOptions options(context);
  options.setInput(in.data(), std::vector<int64_t>(sent.begin(), sent.end()));
  options.setOutput(out.data(), std::vector<int64_t>(received.begin(), received.end()));
  gloo::alltoallv(options);
  require(out == wanted, "alltoallv");
}

// This class uses bound buffers.
void check_reduce_scatter(const Context& context, int of_each) {
  std::vector<int> counts(context->size, of_each);
  const int count = of_each * context->size;
  std::vector<float> data;
  for (int i = 0; i < count; ++i) data.push_back(static_cast<float>(value(context->rank, i)));
  gloo::ReduceScatterHalvingDoubling<float>(context, {data.data()}, count, counts).run();
  for (int i = 0; i < of_each; ++i) {
    float wanted = 0;
    for (int of = 0; of < context->size; ++of) {
      wanted += static_cast<float>(value(of, context->rank * of_each + i));
    }
    require(data[i] == wanted, "reduce-scatter");
  }
}

// The first element of a sum in which every element of every rank has these bits.
template <typename T, typename Bits>
std::string sum_of_bits(const Context& context, Bits bits, Function function) {
  T data[3];
  for (T& each : data) std::memcpy(static_cast<void*>(&each), &bits, sizeof(bits));
  allreduce(context, data, 3, function);
  std::memcpy(&bits, static_cast<const void*>(data), sizeof(bits));
  char text[32];
  std::snprintf(text, sizeof(text), "%llx", static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace

void check_all_calls(const Context& context) {
  check_allreduces<float>(context, "float");
  check_allreduces<double>(context, "double");
  check_allreduces<gloo::float16>(context, "float16");
  check_allreduces<int8_t>(context, "int8");
  check_allreduces<uint8_t>(context, "uint8");
  check_allreduces<int16_t>(context, "int16");
  check_allreduces<uint16_t>(context, "uint16");
  check_allreduces<int32_t>(context, "int32");
  check_allreduces<int64_t>(context, "int64");
  check_allreduces<bool>(context, "bool");
  check_bits(context);
  check_requests(context, 0, 0);
  check_requests(context, context->size - 1, 7);
  check_allgatherv(context);
  check_alltoalls(context);
  check_reduce_scatter(context, 1);
  check_reduce_scatter(context, 5000);
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
}

bool any_rank(const Context& context, bool is_so) {
  long long bits = is_so ? 1 : 0;
  allreduce(context, &bits, 1, &bit_or<long long>);
  return bits != 0;
}

void check_large_sum(const Context& context, size_t elements) {
  check_allreduce<float>(context, elements, &gloo::sum<float>, "large sum");
}

std::string sums_of_no_numbers(const Context& context) {
  const uint32_t bits = 0xffc12345;
  std::string words;
  for (const Function function :
       {Function{&gloo::sum<float>}, Function{&gloo::product<float>}, Function{&gloo::min<float>},
        Function{&gloo::max<float>}, Function{&own_sum<float>}}) {
    words += sum_of_bits<float>(context, bits, function) + " ";
  }
  words += sum_of_bits<double>(context, uint64_t{0xfff8123456789abc}, &gloo::sum<double>) + " ";
  return words + sum_of_bits<gloo::float16>(context, uint16_t{0xfe55}, &gloo::sum<gloo::float16>);
}

void check_members(const Context& context, int id, const std::string& expected) {
  std::vector<int> ids(context->size, -1);
  gloo::AllgatherOptions options(context);
  options.setInput(&id, 1);
  options.setOutput(ids.data(), ids.size());
  gloo::allgather(options);
  std::string members;
  for (const int each : ids) members += std::to_string(each) + " ";
  require(members == expected, "members are " + members + "and not " + expected);
}
