// SPDX-License-Identifier: Apache-2.0
// One rank of a chaos test. It runs collectives of all kinds, sends and receives on several
// contexts, in up to four threads, while the test disturbs the network and the ranks from outside.
// All ranks draw the operations from the same seed. Every result is compared bit for bit with the
// right one. After an operation the caller's memory is overwritten at once: that must not reach
// other ranks, and nobody may write to that memory.
//
// chaos STORE RAILS SEED OPERATIONS: STORE is the rendezvous' directory; commas separate the rails.
// RANK and SIZE come from the environment. Prints {"joined": true} once it has its contexts, now
// and then {"done": N} with the number of completed operations, and the rails' counters at the end.
// Exit status: 0; 1 a wrong result or an error; 2 a bad command line.
#include <gloo/rendezvous/file_store.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/gather.h"
#include "nezha/handle.h"
#include "nezha/reduce.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"
#include "nezha/send_recv.h"

namespace {

constexpr int kThreads = 4;
constexpr int kRound = 40;  // operations between two meetings of the threads
constexpr size_t kMaxBytes = 16 << 20;
constexpr std::byte kPoison{0xa5};

enum class Collective {
  kAllreduce,
  kReduce,
  kBroadcast,
  kBarrier,
  kExchange,  // each rank sends to one rank and receives from one
  // The vectors of these consist of a block for each rank:
  kAllgather,
  kReduceScatter,
  kAlltoall,
  kGather,
  kScatter,
};

bool has_blocks(Collective collective) { return collective >= Collective::kAllgather; }

// What all ranks draw identically.
struct Draw {
  uint64_t id;
  Collective collective;
  nezha::DataType type;
  nezha::ReduceOperation reduction;
  nezha::Algorithm algorithm;
  size_t elements;  // of the vector, or of a block
  int root;         // for an exchange: the distance from sender to receiver
  bool in_place;
  bool asynchronous;
};

template <typename T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

// Most sizes are small.
size_t draw_bytes(std::mt19937_64& random) {
  const uint64_t chance = random() % 1000;
  const size_t most = chance < 550   ? size_t{1} << 10
                      : chance < 800 ? size_t{32} << 10
                      : chance < 970 ? size_t{256} << 10
                      : chance < 997 ? size_t{2} << 20
                                     : kMaxBytes;
  return 1 + random() % most;
}

nezha::Algorithm draw_algorithm(Collective collective, std::mt19937_64& random) {
  using nezha::Algorithm;
  switch (collective) {
    case Collective::kAllreduce:
      return static_cast<Algorithm>(random() % 6);
    case Collective::kAllgather:
      return pick(random,
                  {Algorithm::kAuto, Algorithm::kRing, Algorithm::kBruck, Algorithm::kDirect});
    case Collective::kReduceScatter:
      return pick(random, {Algorithm::kAuto, Algorithm::kRing, Algorithm::kHalvingDoubling,
                           Algorithm::kDirect});
    case Collective::kAlltoall:
      return pick(random, {Algorithm::kAuto, Algorithm::kPairwise, Algorithm::kDirect});
    case Collective::kGather:
    case Collective::kScatter:
      return pick(random, {Algorithm::kAuto, Algorithm::kTree, Algorithm::kDirect});
    default:
      return Algorithm::kAuto;
  }
}

Draw draw(uint64_t id, uint64_t seed, int size) {
  using nezha::DataType;
  using Reduction = nezha::ReduceOperation;
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + id);
  Draw drawn{};
  drawn.id = id;
  drawn.collective =
      pick(random, {Collective::kAllreduce, Collective::kAllreduce, Collective::kAllreduce,
                    Collective::kAllreduce, Collective::kReduce, Collective::kBroadcast,
                    Collective::kBroadcast, Collective::kBarrier, Collective::kAllgather,
                    Collective::kReduceScatter, Collective::kAlltoall, Collective::kGather,
                    Collective::kScatter, Collective::kExchange, Collective::kExchange});
  drawn.type = static_cast<DataType>(1 + random() % 12);
  drawn.reduction =
      pick(random, {Reduction::kSum, Reduction::kMin, Reduction::kMax, Reduction::kProduct});
  drawn.algorithm = draw_algorithm(drawn.collective, random);
  const size_t bytes = id == 11 ? kMaxBytes : draw_bytes(random);  // the largest size
  const auto parts = static_cast<size_t>(has_blocks(drawn.collective) ? size : 1);
  drawn.elements = std::max<size_t>(1, bytes / parts / nezha::sizeOf(drawn.type));
  drawn.root = static_cast<int>(random() % static_cast<uint64_t>(size));
  drawn.in_place = random() % 2 == 0 && drawn.collective != Collective::kExchange;
  drawn.asynchronous = random() % 4 == 0;
  return drawn;
}

// ---- Values ------------------------------------------------------------------------------------

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, nezha::Float16> || std::is_same_v<T, nezha::BFloat16>;

// Numbers that no order of reduction rounds or overflows, so that only one result is right.
template <typename T>
constexpr uint32_t kMask = std::is_same_v<T, nezha::BFloat16>  ? 0x3f
                           : std::is_same_v<T, nezha::Float16> ? 0x7f
                           : sizeof(T) == 1                    ? 0x1f
                           : sizeof(T) == 2                    ? 0x1fff
                                                               : 0xfffff;

template <typename T>
T to(uint32_t value) {
  if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
std::array<std::byte, sizeof(T)> bits(T value) {
  return std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
}

template <typename T>
uint32_t input(const Draw& operation, int rank, size_t element) {
  const uint64_t place =
      (operation.id * 64 + static_cast<uint64_t>(rank)) * 0xd1342543de82ef95 + element;
  const auto value = static_cast<uint32_t>((place * 0x9e3779b97f4a7c15) >> 40);
  return operation.reduction == nezha::ReduceOperation::kProduct ? 1 + value % 3 : value & kMask<T>;
}

template <typename T>
T reduced(const Draw& operation, int size, size_t element) {
  uint32_t result = input<T>(operation, 0, element);
  for (int rank = 1; rank < size; ++rank) {
    const uint32_t value = input<T>(operation, rank, element);
    switch (operation.reduction) {
      case nezha::ReduceOperation::kMin:
        result = std::min(result, value);
        break;
      case nezha::ReduceOperation::kMax:
        result = std::max(result, value);
        break;
      case nezha::ReduceOperation::kProduct:
        result *= value;
        break;
      default:
        result += value;
    }
  }
  return to<T>(result);
}

// The number of elements in a rank's vectors.
struct Lengths {
  size_t input;
  size_t output;
};

Lengths lengths_of(const Draw& operation, int rank, int size) {
  const size_t block = operation.elements;
  const size_t all = block * static_cast<size_t>(size);
  const bool is_root = operation.root == rank;
  switch (operation.collective) {
    case Collective::kAllgather:
      return {block, all};
    case Collective::kReduceScatter:
      return {all, block};
    case Collective::kAlltoall:
      return {all, all};
    case Collective::kGather:
      return {block, is_root ? all : 0};
    case Collective::kScatter:
      return {is_root ? all : 0, block};
    default:
      return {block, block};
  }
}

// An element of the rank's result. In a collective of blocks, it is a copy or a part of the
// reduction.
template <typename T>
T expected(const Draw& operation, int rank, int size, size_t element) {
  const size_t block = operation.elements;
  const size_t own = block * static_cast<size_t>(rank);
  const int from = static_cast<int>(element / block);
  switch (operation.collective) {
    case Collective::kBroadcast:
      return to<T>(input<T>(operation, operation.root, element));
    case Collective::kExchange:
      return to<T>(input<T>(operation, (rank + size - operation.root) % size, element));
    case Collective::kAllgather:
    case Collective::kGather:
      return to<T>(input<T>(operation, from, element % block));
    case Collective::kAlltoall:
      return to<T>(input<T>(operation, from, own + element % block));
    case Collective::kScatter:
      return to<T>(input<T>(operation, operation.root, own + element));
    case Collective::kReduceScatter:
      return reduced<T>(operation, size, own + element);
    default:
      return reduced<T>(operation, size, element);
  }
}

// ---- One thread --------------------------------------------------------------------------------

std::string describe(const Draw& operation) {
  std::ostringstream text;
  text << "operation " << operation.id << " (collective " << static_cast<int>(operation.collective)
       << ", algorithm " << static_cast<int>(operation.algorithm) << ", "
       << nezha::nameOf(operation.reduction) << " of " << operation.elements << " "
       << nezha::nameOf(operation.type) << ", root " << operation.root << ")";
  return text.str();
}

// Memory that its owner no longer needs, and that nobody may write to.
class Abandoned {
 public:
  std::vector<std::byte>& take(size_t bytes, const std::string& user) {
    auto& [memory, last_user] = slots_[next_++ % slots_.size()];
    for (size_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != kPoison) {
        throw std::logic_error("byte " + std::to_string(i) + " of the memory of " + last_user +
                               " was written to after its return");
      }
    }
    memory.resize(bytes);
    memory.shrink_to_fit();
    last_user = user;
    return memory;
  }

 private:
  struct Slot {
    std::vector<std::byte> memory;
    std::string user;
  };
  std::array<Slot, 8> slots_;
  size_t next_ = 0;
};

class Worker {
 public:
  Worker(std::vector<std::shared_ptr<nezha::Context>> contexts, uint32_t tag)
      : contexts_(std::move(contexts)), tag_(tag), rank_(contexts_[0]->rank()) {}

  void run(const Draw& operation) {
    context_ = contexts_[operation.id / kRound % contexts_.size()];
    // Ranks sometimes compute, each for a different time.
    const uint64_t late = (operation.id * 7 + static_cast<uint64_t>(rank_)) * 0x9e3779b97f4a7c15;
    if (late >> 60 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds((late >> 40) % 5000));
    }
    switch (operation.type) {
      case nezha::DataType::kFloat32:
        return run_typed<float>(operation);
      case nezha::DataType::kUint8:
        return run_typed<uint8_t>(operation);
      case nezha::DataType::kInt8:
        return run_typed<int8_t>(operation);
      case nezha::DataType::kInt16:
        return run_typed<int16_t>(operation);
      case nezha::DataType::kUint16:
        return run_typed<uint16_t>(operation);
      case nezha::DataType::kInt32:
        return run_typed<int32_t>(operation);
      case nezha::DataType::kUint32:
        return run_typed<uint32_t>(operation);
      case nezha::DataType::kInt64:
        return run_typed<int64_t>(operation);
      case nezha::DataType::kUint64:
        return run_typed<uint64_t>(operation);
      case nezha::DataType::kFloat16:
        return run_typed<nezha::Float16>(operation);
      case nezha::DataType::kBFloat16:
        return run_typed<nezha::BFloat16>(operation);
      case nezha::DataType::kFloat64:
        return run_typed<double>(operation);
    }
  }

 private:
  template <typename T>
  void run_typed(const Draw& operation) {
    const std::string name = describe(operation);
    const Lengths lengths = lengths_of(operation, rank_, context_->size());
    auto& from = inputs_.take(lengths.input * sizeof(T), name);
    auto& to_memory = outputs_.take(lengths.output * sizeof(T), name);
    T* in = reinterpret_cast<T*>(from.data());
    T* out = reinterpret_cast<T*>(to_memory.data());
    std::fill(to_memory.begin(), to_memory.end(), kPoison);
    const bool in_place = operation.collective == Collective::kBroadcast ||
                          (operation.in_place && lengths.input == lengths.output);
    T* source = in_place ? out : in;
    for (size_t i = 0; i < lengths.input; ++i) source[i] = to<T>(input<T>(operation, rank_, i));
    carry_out(operation, in_place ? nullptr : in, out);
    const bool has_result =
        operation.collective != Collective::kBarrier &&
        (operation.collective != Collective::kReduce || operation.root == rank_);
    for (size_t i = 0; has_result && i < lengths.output; ++i) {
      const T right = expected<T>(operation, rank_, context_->size(), i);
      if (bits(out[i]) != bits(right)) {
        throw std::logic_error("element " + std::to_string(i) + " of " + name + " is wrong");
      }
    }
    // Data of this operation that is still in flight must not come from this memory, nor go to it.
    std::fill(from.begin(), from.end(), kPoison);
    std::fill(to_memory.begin(), to_memory.end(), kPoison);
  }

  template <typename T>
  void carry_out(const Draw& operation, const T* in, T* out) {
    const size_t elements = operation.elements;
    const auto finish = [&](auto blocking, auto begin, auto& options) {
      options.setTag(tag_);
      if (operation.asynchronous) {
        begin(options).wait();
      } else {
        blocking(options);
      }
    };
    switch (operation.collective) {
      case Collective::kAllreduce: {
        nezha::AllreduceOptions options(context_);
        options.setOperation(operation.reduction);
        options.setAlgorithm(operation.algorithm);
        if (in != nullptr) options.setInput(in, elements);
        options.setOutput(out, elements);
        return finish(nezha::allreduce, nezha::allreduceAsync, options);
      }
      case Collective::kReduce: {
        nezha::ReduceOptions options(context_);
        options.setOperation(operation.reduction);
        options.setRoot(operation.root);
        if (in != nullptr || operation.root != rank_) {
          options.setInput(in != nullptr ? in : out, elements);
        }
        if (operation.root == rank_) options.setOutput(out, elements);
        return finish(nezha::reduce, nezha::reduceAsync, options);
      }
      case Collective::kBroadcast: {
        nezha::BroadcastOptions options(context_);
        options.setRoot(operation.root);
        options.setOutput(out, elements);
        return finish(nezha::broadcast, nezha::broadcastAsync, options);
      }
      case Collective::kBarrier: {
        nezha::BarrierOptions options(context_);
        return finish(nezha::barrier, nezha::barrierAsync, options);
      }
      case Collective::kExchange:
        return exchange(operation, in, out);
      default:
        return carry_out_blocks(operation, in, out);
    }
  }

  // Some receives accept any rank. The tag is the operation's and not the thread's, so only one
  // rank sends here.
  template <typename T>
  void exchange(const Draw& operation, const T* in, T* out) {
    const int size = context_->size();
    const int source = (rank_ + size - operation.root) % size;
    nezha::RecvOptions receive(context_);
    receive.setOutput(out, operation.elements);
    receive.setTag(operation.id);
    if (operation.id % 3 == 0) {
      receive.setAnySource();
    } else {
      receive.setSource(source);
    }
    nezha::SendOptions send(context_);
    send.setInput(in, operation.elements);
    send.setTag(operation.id);
    send.setDestination((rank_ + operation.root) % size);
    std::vector<nezha::Handle> handles;
    if (operation.asynchronous) handles.push_back(nezha::sendAsync(send));
    handles.push_back(nezha::recvAsync(receive));
    if (!operation.asynchronous) nezha::send(send);
    nezha::waitAll(handles);
    if (handles.back().source() != source) throw std::logic_error("the source is wrong");
  }

  template <typename T>
  void carry_out_blocks(const Draw& operation, const T* in, T* out) {
    const Lengths lengths = lengths_of(operation, rank_, context_->size());
    const auto finish = [&](auto blocking, auto begin, auto options) {
      if (in != nullptr && lengths.input > 0) options.setInput(in, lengths.input);
      if (lengths.output > 0) options.setOutput(out, lengths.output);
      options.setAlgorithm(operation.algorithm);
      options.setTag(tag_);
      if (operation.asynchronous) {
        begin(options).wait();
      } else {
        blocking(options);
      }
    };
    switch (operation.collective) {
      case Collective::kAllgather:
        return finish(nezha::allgather, nezha::allgatherAsync, nezha::AllgatherOptions(context_));
      case Collective::kReduceScatter: {
        nezha::ReduceScatterOptions options(context_);
        options.setOperation(operation.reduction);
        return finish(nezha::reduceScatter, nezha::reduceScatterAsync, options);
      }
      case Collective::kAlltoall:
        return finish(nezha::alltoall, nezha::alltoallAsync, nezha::AlltoallOptions(context_));
      case Collective::kGather: {
        nezha::GatherOptions options(context_);
        options.setRoot(operation.root);
        return finish(nezha::gather, nezha::gatherAsync, options);
      }
      default: {
        nezha::ScatterOptions options(context_);
        options.setRoot(operation.root);
        return finish(nezha::scatter, nezha::scatterAsync, options);
      }
    }
  }

  const std::vector<std::shared_ptr<nezha::Context>> contexts_;
  const uint32_t tag_;
  const int rank_;
  std::shared_ptr<nezha::Context> context_;
  Abandoned inputs_;
  Abandoned outputs_;
};

// ---- All of it ---------------------------------------------------------------------------------

void print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

// Runs the operations first .. last - 1; the number of an operation determines its thread.
void run_round(std::vector<Worker>& workers, uint64_t seed, int size, uint64_t first,
               uint64_t last) {
  const uint64_t count = 1 + first / kRound % kThreads;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        for (uint64_t id = first + i; id < last; id += count) {
          workers[i].run(draw(id, seed, size));
        }
      } catch (const std::exception& error) {
        // The other threads may wait for messages that will never come.
        std::fprintf(stderr, "chaos: %s\n", error.what());
        std::quick_exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void print_counters(const nezha::Context& context) {
  std::ostringstream line;
  line << "{\"rails\": [";
  const char* separator = "";
  for (const nezha::RailStats& rail : context.rails()) {
    line << separator << "{\"name\": \"" << rail.name << "\", \"sent\": " << rail.bytes_sent
         << ", \"failures\": " << rail.failures << ", \"resent\": " << rail.segments_resent << "}";
    separator = ", ";
  }
  line << "]}";
  print(line.str());
}

int run(char** argv) {
  const uint64_t seed = std::stoull(argv[3]);
  const uint64_t operations = std::stoull(argv[4]);
  nezha::ContextOptions options;
  std::istringstream rails(argv[2]);
  for (std::string rail; std::getline(rails, rail, ',');) options.rails.push_back(rail);
  options.rank = std::atoi(std::getenv("RANK"));
  options.size = std::atoi(std::getenv("SIZE"));
  std::vector<std::shared_ptr<nezha::Context>> contexts;
  for (const auto plan : {nezha::Plan::kStripe, nezha::Plan::kSlice, nezha::Plan::kAuto}) {
    options.plan = plan;
    options.policy =
        plan == nezha::Plan::kSlice ? nezha::BalancePolicy::kShuffle : nezha::BalancePolicy::kModel;
    const auto folder = std::filesystem::path(argv[1]) / std::to_string(static_cast<int>(plan));
    std::filesystem::create_directory(folder);
    contexts.push_back(nezha::Context::create(
        std::make_shared<gloo::rendezvous::FileStore>(folder.string()), options));
  }
  print("{\"joined\": true}");
  std::vector<Worker> workers;
  for (uint32_t tag = 1; tag <= kThreads; ++tag) workers.emplace_back(contexts, tag);
  for (uint64_t done = 0; done < operations;) {
    const uint64_t last = std::min(done + kRound, operations);
    run_round(workers, seed, contexts[0]->size(), done, last);
    done = last;
    print("{\"done\": " + std::to_string(done) + "}");
  }
  print_counters(*contexts[0]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("chaos STORE RAILS SEED OPERATIONS\n", stderr);
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chaos: %s\n", error.what());
    return 1;
  }
}
