// SPDX-License-Identifier: Apache-2.0
// The smallest program that uses nezha: every rank contributes a vector and gets the sum. Two
// ranks on one machine, over its loopback device:
//
//   mkdir /tmp/meeting
//   ./allreduce 0 2 /tmp/meeting tcp:lo & ./allreduce 1 2 /tmp/meeting tcp:lo; wait
//
// Ranks on several machines share the directory (NFS, say), a new one for each run, and name one
// rail per network: `./allreduce 0 2 DIRECTORY tcp:eth0 tcp:eth1`.
#include <gloo/rendezvous/file_store.h>
#include <nezha/allreduce.h>
#include <nezha/context.h>
#include <nezha/errors.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

// Small integers, whose float sums are exact. They depend on the rank and on the index, so that the
// sum shows a missing rank or a shifted element.
float element(int rank, size_t index) {
  return static_cast<float>((rank + 1) * static_cast<int>(index % 1000));
}

int run(int rank, int size, const char* directory, std::vector<std::string> rails) {
  nezha::ContextOptions options;
  options.rank = rank;
  options.size = size;
  options.rails = std::move(rails);
  // The ranks find each other through a store. Any of Gloo's stores will do.
  if (!std::filesystem::is_directory(directory)) {
    throw std::runtime_error(std::string(directory) + " is no directory: make it first");
  }
  auto store = std::make_shared<gloo::rendezvous::FileStore>(directory);
  auto context = nezha::Context::create(store, options);

  std::vector<float> data(1 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = element(rank, i);

  nezha::AllreduceOptions allreduce(context);
  allreduce.setOutput(data.data(), data.size());  // in place: the output is the input too
  nezha::allreduce(allreduce);

  for (size_t i = 0; i < data.size(); ++i) {
    float expected = 0;
    for (int r = 0; r < size; ++r) expected += element(r, i);
    if (data[i] != expected) {
      std::fprintf(stderr, "rank %d: element %zu is %g, not %g\n", rank, i,
                   static_cast<double>(data[i]), static_cast<double>(expected));
      return 1;
    }
  }
  std::printf("rank %d of %d: the sum of %zu elements is right", rank, size, data.size());
  for (const auto& rail : context->rails()) {
    std::printf("; %s sent %llu bytes", rail.name.c_str(),
                static_cast<unsigned long long>(rail.bytes_sent));
  }
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: %s RANK SIZE SHARED-DIRECTORY RAIL...\n", argv[0]);
    return 2;
  }
  try {
    return run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], {argv + 4, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %s: %s\n", argv[1], error.what());
    return 1;
  }
}
