// mpi-bench: MPI measured in the same way as nezha. mpirun starts it, and its options say which
// networks MPI uses, and how. Built once for each MPI library.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings, which MPI has given up
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/benchmark_main.h"
#include "bench/interface_bytes.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "mpi-bench",
    "the speed of MPI's allreduce, measured as nezha-bench does",
    {"allreduce"},
    "interfaces",
    "LIST",
    "network interfaces whose bytes are counted; mpirun's options say which ones MPI uses",
    {"default"},
    {"default"},
};

class Allreduce : public Operation {
 public:
  Allreduce(float* input, float* output, size_t elements)
      : input_(input), output_(output), elements_(static_cast<int>(elements)) {}

  // An error ends the whole job, which is MPI's default.
  void run() override {
    const void* input = input_ == output_ ? MPI_IN_PLACE : input_;
    MPI_Allreduce(input, output_, elements_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

 private:
  float* const input_;
  float* const output_;
  const int elements_;
};

class MpiRunner : public Runner {
 public:
  explicit MpiRunner(const Options& options) : interfaces_(options.rails) {
    if (options.threads > 1) throw std::runtime_error("--threads: MPI is used by one thread");
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != options.rank || size != options.size) {
      throw std::runtime_error(absl::StrCat("MPI has it as rank ", rank, " of ", size));
    }
  }

  // Not after an error: MPI would wait for the other ranks, and mpirun ends those when it sees a
  // process end without this.
  ~MpiRunner() override {
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  MpiRunner(const MpiRunner&) = delete;
  MpiRunner& operator=(const MpiRunner&) = delete;

  std::unique_ptr<Operation> prepare(const std::string&, float* input, float* output,
                                     size_t elements, uint32_t) override {
    if (elements > std::numeric_limits<int>::max()) {
      throw std::runtime_error("--elements: MPI counts them by an int");
    }
    return std::make_unique<Allreduce>(input, output, elements);
  }

  std::vector<RailBytes> bytes_sent() const override { return interface_bytes_sent(interfaces_); }

 private:
  const std::vector<std::string> interfaces_;
};

std::unique_ptr<Runner> connect(const Options& options, Meeting&) {
  return std::make_unique<MpiRunner>(options);
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
