// SPDX-License-Identifier: Apache-2.0
// Every rank reduces some vectors with all others: in place, between buffers, of several inputs, by
// a function of its own. Then it waits in vain, catches the error, and joins anew.
//
//   mkdir /tmp/meeting
//   ./with_gloo 0 2 /tmp/meeting lo & ./with_gloo 1 2 /tmp/meeting lo; wait
//
// Instead of an empty directory HOST:PORT names a Redis server without keys.
#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/rendezvous/redis_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace {

using gloo::rendezvous::Store;

constexpr size_t kElements = 100000;

struct Arguments {
  int rank;
  int size;
  std::string store;
  std::string interface;
};

std::shared_ptr<Store> open_store(const std::string& place) {
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos) return std::make_shared<gloo::rendezvous::FileStore>(place);
  return std::make_shared<gloo::rendezvous::RedisStore>(place.substr(0, colon),
                                                        std::stoi(place.substr(colon + 1)));
}

std::shared_ptr<gloo::Context> join(const Arguments& job, Store& store, const std::string& name) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = job.interface;
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(job.rank, job.size);
  context->setTimeout(std::chrono::seconds(20));
  gloo::rendezvous::PrefixStore prefixed(name, store);
  context->connectFullMesh(prefixed, device);
  return context;
}

// Small numbers, whose float sums are exact.
template <typename T>
std::vector<T> numbers(int rank) {
  std::vector<T> numbers(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    numbers[i] = static_cast<T>(rank + 1) * static_cast<T>(i % 1000);
  }
  return numbers;
}

template <typename T>
void print(int rank, const char* what, const std::vector<T>& result) {
  double sum = 0;
  for (const T& element : result) sum += static_cast<double>(element);
  std::printf("rank %d, %s: %g %g, %.0f in all\n", rank, what, static_cast<double>(result[1]),
              static_cast<double>(result[kElements - 1]), sum);
}

template <typename T>
void sum(void* out, const void* a, const void* b, size_t elements) {
  gloo::sum<T>(out, a, b, elements);
}

template <typename T>
void maximum(void* out, const void* a, const void* b, size_t elements) {
  gloo::max<T>(out, a, b, elements);
}

void in_place(const std::shared_ptr<gloo::Context>& context) {
  auto data = numbers<float>(context->rank);

  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(sum<float>);
  gloo::allreduce(options);

  print(context->rank, "in place", data);
}

void between_buffers(const std::shared_ptr<gloo::Context>& context) {
  auto input = numbers<int32_t>(context->rank);
  std::vector<int32_t> output(input.size());

  gloo::AllreduceOptions options(context);
  options.setInput(input.data(), input.size());
  options.setOutput(output.data(), output.size());
  options.setReduceFunction(maximum<int32_t>);
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
  gloo::allreduce(options);

  print(context->rank, "the input", input);
  print(context->rank, "the maximum", output);
}

void several_inputs(const std::shared_ptr<gloo::Context>& context) {
  auto one = numbers<double>(context->rank);
  auto two = numbers<double>(2 * context->rank);

  gloo::AllreduceOptions options(context);
  options.setInputs(std::vector<double*>{one.data(), two.data()}, one.size());
  options.setOutputs(std::vector<double*>{one.data(), two.data()}, one.size());
  options.setReduceFunction(sum<double>);
  gloo::allreduce(options);

  print(context->rank, "of two inputs", one);
  print(context->rank, "and once more", two);
}

void multiply(void* out, const void* a, const void* b, size_t elements) {
  constexpr uint64_t kModulus = 1000003;
  const auto* x = static_cast<const uint64_t*>(a);
  const auto* y = static_cast<const uint64_t*>(b);
  auto* product = static_cast<uint64_t*>(out);
  for (size_t i = 0; i < elements; ++i) product[i] = x[i] * y[i] % kModulus;
}

void own_function(const std::shared_ptr<gloo::Context>& context) {
  auto data = numbers<uint64_t>(context->rank);

  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(multiply);
  gloo::allreduce(options);

  print(context->rank, "by an own function", data);
}

// Each rank uses a tag that no other does.
void in_vain(const std::shared_ptr<gloo::Context>& context) {
  auto data = numbers<float>(context->rank);

  gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), data.size());
  options.setReduceFunction(sum<float>);
  options.setTag(1000 + static_cast<uint32_t>(context->rank));
  options.setTimeout(std::chrono::milliseconds(500));
  gloo::allreduce(options);
}

void run(const Arguments& job) {
  const auto store = open_store(job.store);
  auto context = join(job, *store, "first");
  in_place(context);
  between_buffers(context);
  several_inputs(context);
  own_function(context);
  try {
    in_vain(context);
  } catch (const gloo::IoException& error) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank, error.what());
    std::printf("rank %d joins anew\n", job.rank);
    context.reset();
    context = join(job, *store, "second");
  }
  in_place(context);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s RANK SIZE STORE INTERFACE\n", argv[0]);
    return 2;
  }
  try {
    run({std::atoi(argv[1]), std::atoi(argv[2]), argv[3], argv[4]});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %s: %s\n", argv[1], error.what());
    return 1;
  }
}
