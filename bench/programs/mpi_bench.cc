// SPDX-License-Identifier: Apache-2.0
// mpi-bench: measures MPI in the same way as nezha. mpirun starts it, and mpirun's options say
// which networks MPI uses, and how. It is built once for each MPI library.
#define OMPI_SKIP_MPICXX 1  // the C++ bindings, which MPI has given up
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/measurement/benchmark_main.h"
#include "bench/measurement/element_type.h"
#include "bench/measurement/interface_bytes.h"
#include "bench/measurement/shape.h"

namespace nezha::bench {
namespace {

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

// One collective as MPI takes it. In place, `input` is MPI_IN_PLACE where MPI wants that.
struct Call {
  const void* input = nullptr;
  void* output = nullptr;
  int elements = 0;  // elements of the vector, or of a block where it is made of blocks
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op operation = MPI_OP_NULL;
  size_t bytes = 0;  // the bytes of that many elements
};

using Function = void (*)(const Call& call);

constexpr int kRoot = 0;

// MPI's broadcast has one vector. If the result is to lie in another one, the root copies it.
void broadcast(const Call& call) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == kRoot && call.input != MPI_IN_PLACE) {
    std::memcpy(call.output, call.input, call.bytes);
  }
  MPI_Bcast(call.output, call.elements, call.type, kRoot, MPI_COMM_WORLD);
}

const std::map<std::string, Function>& functions() {
  static const auto& all = *new std::map<std::string, Function>{
      {"allreduce",
       [](const Call& c) {
         MPI_Allreduce(c.input, c.output, c.elements, c.type, c.operation, MPI_COMM_WORLD);
       }},
      {"reduce",
       [](const Call& c) {
         MPI_Reduce(c.input, c.output, c.elements, c.type, c.operation, kRoot, MPI_COMM_WORLD);
       }},
      {"broadcast", broadcast},
      {"barrier", [](const Call&) { MPI_Barrier(MPI_COMM_WORLD); }},
      {"allgather",
       [](const Call& c) {
         MPI_Allgather(c.input, c.elements, c.type, c.output, c.elements, c.type, MPI_COMM_WORLD);
       }},
      {"reduce_scatter",
       [](const Call& c) {
         MPI_Reduce_scatter_block(c.input, c.output, c.elements, c.type, c.operation,
                                  MPI_COMM_WORLD);
       }},
      {"alltoall",
       [](const Call& c) {
         MPI_Alltoall(c.input, c.elements, c.type, c.output, c.elements, c.type, MPI_COMM_WORLD);
       }},
      {"gather",
       [](const Call& c) {
         MPI_Gather(c.input, c.elements, c.type, c.output, c.elements, c.type, kRoot,
                    MPI_COMM_WORLD);
       }},
      {"scatter",
       [](const Call& c) {
         MPI_Scatter(c.input, c.elements, c.type, c.output, c.elements, c.type, kRoot,
                     MPI_COMM_WORLD);
       }},
  };
  return all;
}

std::vector<std::string> collectives() {
  std::vector<std::string> names;
  for (const auto& [name, function] : functions()) names.push_back(name);
  return names;
}

// Sets the vectors of an operation in place. In a reduce and a gather only the root passes
// MPI_IN_PLACE; in a scatter the root passes it for its output.
void set_in_place(Call& call, const std::string& collective, bool is_root) {
  const CollectiveKind& kind = kind_of(collective);
  if (collective == "scatter") {
    if (is_root) call.output = MPI_IN_PLACE;
  } else if (collective == "broadcast" || is_root || !kind.is_rooted) {
    call.input = MPI_IN_PLACE;
  }
}

class Collective : public Operation {
 public:
  Collective(const Request& request, int rank, bool in_place)
      : function_(functions().at(request.collective)) {
    call_.input = request.input;
    call_.output = request.output;
    call_.elements = static_cast<int>(request.elements);
    call_.type = type_of(request.type);
    call_.operation = operation_of(request.operation);
    call_.bytes = request.elements * sizeOf(request.type);
    if (in_place) set_in_place(call_, request.collective, rank == kRoot);
  }

  // An error ends the whole job, which is MPI's default.
  void run() override { function_(call_); }

 private:
  const Function function_;
  Call call_;
};

const Dialect kDialect = {
    "mpi-bench",
    "the speed of MPI's collectives, measured as nezha-bench does",
    collectives(),
    {"float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
     "uint64"},
    {"sum", "product", "min", "max"},
    "interfaces",
    "LIST",
    "network interfaces whose bytes are counted; mpirun's options say which ones MPI uses",
    {"default"},
    {"default"},
};

class MpiRunner : public Runner {
 public:
  explicit MpiRunner(const Options& options)
      : interfaces_(options.rails), rank_(options.rank), in_place_(options.in_place) {
    if (options.threads > 1)
      throw std::runtime_error("--threads: mpi-bench calls MPI from one thread only");
    if (options.in_place && options.collective == "reduce_scatter") {
      throw std::runtime_error(
          "--in-place: MPI's reduce_scatter leaves its result at the beginning of the vector, and"
          " not at the rank's block");
    }
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != options.rank || size != options.size) {
      throw std::runtime_error(absl::StrCat("to MPI this process is rank ", rank, " of ", size,
                                            "; give no other --rank and --size"));
    }
  }

  // Does not finalize after an error: MPI would wait for the other ranks, and mpirun ends those
  // when it sees a process end without this.
  ~MpiRunner() override {
    if (std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  MpiRunner(const MpiRunner&) = delete;
  MpiRunner& operator=(const MpiRunner&) = delete;

  std::unique_ptr<Operation> prepare(const Request& request) override {
    if (request.elements > std::numeric_limits<int>::max()) {
      throw std::runtime_error("--elements: MPI counts elements with an int; give fewer");
    }
    // The benchmark's own allreduces are always in place.
    const bool in_place = in_place_ || request.input == request.output;
    return std::make_unique<Collective>(request, rank_, in_place);
  }

  std::vector<RailBytes> bytes_sent() const override { return interface_bytes_sent(interfaces_); }

 private:
  const std::vector<std::string> interfaces_;
  const int rank_;
  const bool in_place_;
};

std::unique_ptr<Runner> connect(const Options& options, Meeting&) {
  return std::make_unique<MpiRunner>(options);
}

}  // namespace
}  // namespace nezha::bench

int main(int argc, char** argv) {
  return nezha::bench::benchmark_main(argc, argv, nezha::bench::kDialect, nezha::bench::connect);
}
