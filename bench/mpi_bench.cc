// SPDX-License-Identifier: Apache-2.0
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
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/benchmark_main.h"
#include "bench/element_type.h"
#include "bench/interface_bytes.h"

namespace nezha::bench {
namespace {

const Dialect kDialect = {
    "mpi-bench",
    "the speed of MPI's allreduce, measured as nezha-bench does",
    {"allreduce"},
    {"float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
     "uint64"},
    {"sum", "product", "min", "max"},
    "interfaces",
    "LIST",
    "network interfaces whose bytes are counted; mpirun's options say which ones MPI uses",
    {"default"},
    {"default"},
};

MPI_Datatype type_of(DataType type) {
  return with_type(type, [](auto tag) -> MPI_Datatype {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_same_v<T, float>) {
      return MPI_FLOAT;
    } else if constexpr (std::is_same_v<T, double>) {
      return MPI_DOUBLE;
    } else if constexpr (std::is_signed_v<T>) {
      return sizeof(T) == 1   ? MPI_INT8_T
             : sizeof(T) == 2 ? MPI_INT16_T
             : sizeof(T) == 4 ? MPI_INT32_T
                              : MPI_INT64_T;
    } else {
      return sizeof(T) == 1   ? MPI_UINT8_T
             : sizeof(T) == 2 ? MPI_UINT16_T
             : sizeof(T) == 4 ? MPI_UINT32_T
                              : MPI_UINT64_T;
    }
  });
}

MPI_Op operation_of(ReduceOperation operation) {
  switch (operation) {
    case ReduceOperation::kProduct:
      return MPI_PROD;
    case ReduceOperation::kMin:
      return MPI_MIN;
    case ReduceOperation::kMax:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

class Allreduce : public Operation {
 public:
  explicit Allreduce(const Request& request)
      : input_(request.input),
        output_(request.output),
        elements_(static_cast<int>(request.elements)),
        type_(type_of(request.type)),
        operation_(operation_of(request.operation)) {}

  // An error ends the whole job, which is MPI's default.
  void run() override {
    const void* input = input_ == output_ ? MPI_IN_PLACE : input_;
    MPI_Allreduce(input, output_, elements_, type_, operation_, MPI_COMM_WORLD);
  }

 private:
  void* const input_;
  void* const output_;
  const int elements_;
  const MPI_Datatype type_;
  const MPI_Op operation_;
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

  std::unique_ptr<Operation> prepare(const Request& request) override {
    if (request.elements > std::numeric_limits<int>::max()) {
      throw std::runtime_error("--elements: MPI counts them by an int");
    }
    return std::make_unique<Allreduce>(request);
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
