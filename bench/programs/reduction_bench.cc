// SPDX-License-Identifier: Apache-2.0
// Measures how fast the reduction kernels are, compared to what the memory allows.
//
// A kernel reads two vectors and writes a third; bytes/s counts these three. Each run of a kernel
// follows a run of a plain loop that adds floats over the same vectors, as the compiler vectorises
// it. `of_plain` is the median over these pairs of the plain loop's time divided by the kernel's.
// With 1 the kernel is as fast as the memory lets any loop be that does not bypass the caches. A
// kernel must not bypass them: its output is sent on at once, from the cache. memcpy, which does
// bypass them, reads one vector and writes another; it is there for those who know their machine by
// it.
//
// There are two sizes: vectors that no cache holds, and vectors that the second-level cache holds,
// as it does segments when they are reduced.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "collectives/reduction.h"

namespace {

using nezha::DataType;
using nezha::ReduceOperation;
using Kernel = std::function<void(void* out, const void* a, const void* b, size_t bytes)>;

// Returns four times the last cache's size.
size_t beyond_caches() {
  size_t last = size_t{8} << 20;  // the size if the machine does not say
  for (const auto& cache : benchmark::CPUInfo::Get().caches) {
    last = std::max(last, static_cast<size_t>(cache.size));
  }
  return 4 * last;
}

constexpr size_t kInCache = size_t{128} << 10;

// Vectors whose bytes are all 1: normal numbers in every type.
struct Vectors {
  explicit Vectors(size_t bytes)
      : size(bytes), a(bytes, std::byte{1}), b(bytes, std::byte{1}), out(bytes, std::byte{1}) {}
  size_t size;
  std::vector<std::byte> a, b, out;
};

template <typename T>
void plain(void* out, const void* a, const void* b, size_t bytes) {
  auto* __restrict to = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) to[i] = x[i] + y[i];
}

void copy(void* out, const void* a, const void*, size_t bytes) { std::memcpy(out, a, bytes); }

// Returns this thread's own time, so that other work on the CPU is not counted.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds(const Kernel& kernel, Vectors& v) {
  const double start = now();
  kernel(v.out.data(), v.a.data(), v.b.data(), v.size);
  benchmark::ClobberMemory();
  return now() - start;
}

void measure(benchmark::State& state, const Kernel& kernel, size_t size, int64_t streams) {
  Vectors v(size);
  std::vector<double> ratios;
  while (state.KeepRunning()) {
    const double plain_time = seconds(plain<float>, v);
    const double time = seconds(kernel, v);
    state.SetIterationTime(time);
    ratios.push_back(plain_time / time);
  }
  std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2, ratios.end());
  state.counters["of_plain"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(state.iterations() * streams * static_cast<int64_t>(size));
}

void add(const std::string& name, const Kernel& kernel, int64_t streams = 3) {
  for (const size_t size : {beyond_caches(), kInCache}) {
    const std::string full = name + (size == kInCache ? "/cache" : "/memory");
    benchmark::RegisterBenchmark(full.c_str(), measure, kernel, size, streams)->UseManualTime();
  }
}

void add(DataType type, ReduceOperation operation) {
  const auto reduce = nezha::reduction(type, operation);
  const size_t element = nezha::sizeOf(type);
  add(std::string(nameOf(operation)) + "/" + nameOf(type),
      [=](void* out, const void* a, const void* b, size_t bytes) {
        reduce(out, a, b, bytes / element);
      });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  add("memcpy", copy, 2);
  add("plain/float32", plain<float>);
  add("plain/float64", plain<double>);
  for (int number = 1; nezha::nameOf(static_cast<DataType>(number)) != nullptr; ++number) {
    add(static_cast<DataType>(number), ReduceOperation::kSum);
  }
  for (const auto type : {DataType::kFloat32, DataType::kBFloat16, DataType::kInt8}) {
    add(type, ReduceOperation::kMin);
  }
  benchmark::RunSpecifiedBenchmarks();
}
