// SPDX-License-Identifier: Apache-2.0
// One rank of a test job. It runs collectives whose inputs it can recompute, and checks the results
// element by element. It prints events as lines of JSON, so that a test can act in the middle of an
// operation. RANK and SIZE in the environment give the rank and the number of ranks; options.cc
// lists the options.
//
// Events: "joined", "start" and "done" of an operation (those that --report selects), "error" (a
// call threw), "wrong" (a wrong result), and, if all went well, "balance" (with --settle) and
// "end". Exit status: 0; 1 an error or a wrong result; 2 a bad command line.
#include <gloo/rendezvous/file_store.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cluster/events.h"
#include "cluster/worker/options.h"
#include "cluster/worker/shape.h"
#include "cluster/worker/values.h"
#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/alltoall.h"
#include "nezha/barrier.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/errors.h"
#include "nezha/gather.h"
#include "nezha/redis_store.h"
#include "nezha/reduce.h"
#include "nezha/reduce_scatter.h"
#include "nezha/scatter.h"
#include "nezha/send_recv.h"

namespace nezha::worker {
namespace {

using nezha::events::Clock;
using nezha::events::emit;
using nezha::events::error_members;
using nezha::events::json_string;
using nezha::events::member;
using nezha::events::seconds_since;
using std::chrono::milliseconds;

// ---- Events ------------------------------------------------------------------------------------

std::string rails_of(const nezha::Context& context) {
  std::string list;
  for (const auto& rail : context.rails()) {
    list += std::string(list.empty() ? "[" : ",") + "{\"name\":" + json_string(rail.name) +
            member("sent", static_cast<double>(rail.bytes_sent)) +
            member("received", static_cast<double>(rail.bytes_received)) +
            member("resent", static_cast<double>(rail.segments_resent)) +
            member("failures", static_cast<double>(rail.failures)) +
            member("last_failure", json_string(rail.last_failure)) +
            member("down_peers", static_cast<double>(rail.down_peers)) +
            member("down_seconds", rail.down_seconds) +
            member("last_error", json_string(rail.last_error)) +
            member("lossy_peers", static_cast<double>(rail.lossy_peers)) + "}";
  }
  return list + "]";
}

std::string list_of(const std::vector<double>& numbers) {
  std::string list;
  for (const double number : numbers) {
    list += (list.empty() ? "[" : ",") + std::to_string(number);
  }
  return list.empty() ? "[]" : list + "]";
}

// How messages are divided, and what is known about them.
std::string balance_of(const nezha::Context& context) {
  const nezha::BalanceStats balance = context.balance();
  std::string lanes;
  for (const auto& lane : balance.lanes) {
    lanes += (lanes.empty() ? "[" : ",") + json_string(lane);
  }
  std::string classes;
  for (const auto& known : balance.classes) {
    classes += std::string(classes.empty() ? "[" : ",") +
               "{\"bytes\":" + std::to_string(known.least_bytes) +
               member("shares", list_of(known.shares)) + member("number", known.number) +
               member("algorithm", json_string(known.algorithm)) +
               member("state", json_string(known.state)) +
               member("lane_us", list_of(known.lane_us)) +
               member("windows", static_cast<double>(known.windows)) +
               member("history", json_string(known.history)) + "}";
  }
  return "{\"lanes\":" + (lanes.empty() ? "[]" : lanes + "]") +
         member("classes", classes.empty() ? "[]" : classes + "]") + "}";
}

double peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::atof(line.c_str() + std::strlen("VmHWM:"));
  }
  return 0;
}

// ---- The job -----------------------------------------------------------------------------------

std::shared_ptr<gloo::rendezvous::Store> store_at(const std::string& where) {
  if (where.rfind("redis", 0) == 0) return std::make_shared<nezha::RedisStore>(where);
  return std::make_shared<gloo::rendezvous::FileStore>(where);
}

// The operations of one tag run one after the other, whichever threads run them.
class Turns {
 public:
  explicit Turns(int tags) : done_(static_cast<size_t>(tags), 0) {}

  // Returns false if another thread has failed, so that the turn will never come.
  bool wait_for(size_t tag, int operation) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || done_[tag] == operation; });
    return !stopped_;
  }
  void pass(size_t tag) {
    const std::lock_guard lock(mutex_);
    ++done_[tag];
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> done_;
  bool stopped_ = false;
};

class Job {
 public:
  explicit Job(const Options& options) : options_(options), turns_(options.threads) {
    std::seed_seq seeds{options.seed, static_cast<uint32_t>(options.rank)};
    draw_.seed(seeds);
  }

  // Returns whether all results were right.
  bool run() {
    sleep(options_.delay);
    context_ = nezha::Context::create(store_at(options_.store), options_.context);
    emit("joined", "");
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(options_.threads));
    for (int i = 0; i < options_.threads; ++i) {
      threads.emplace_back([this, i] { run_thread(i); });
    }
    for (auto& thread : threads) thread.join();
    if (!ok_) return false;
    settle();
    const std::string last = member("rails", rails_of(*context_)) +  //
                             member("balance", balance_of(*context_));
    context_.reset();  // so that memory held for other ranks counts, too
    emit("end", member("peak_kib", peak_kib()) + last);
    return true;
  }

 private:
  static constexpr size_t kGuard = 7;  // elements around each buffer; odd, so that it is unaligned
  static constexpr auto kUntouched = std::byte{0xa5};
  static constexpr uint32_t kStopTag = 1U << 31;

  void run_thread(int thread) {
    Clock::time_point start;
    std::vector<std::byte> input;
    std::vector<std::byte> output;
    bool stop = false;
    for (int operation = 0; ok_ && !stop; ++operation) {
      const size_t tag = tag_of(thread, operation);
      if (!turns_.wait_for(tag, operation)) return;
      const auto& late = options_.late;
      if (late.rank == options_.rank && late.operation == operation) sleep({late.ms, late.ms});
      sleep(options_.pause);
      try {
        start = Clock::now();
        run_operation(operation, static_cast<int>(tag), input, output);
        stop = options_.until.empty() ? operation + 1 == options_.operations : stop_requested();
      } catch (const std::exception& error) {
        emit("error", name(operation, static_cast<int>(tag)) + error_members(error) +
                          member("seconds", seconds_since(start)));
        ok_ = false;
        turns_.stop();
        stay();
        return;
      }
      turns_.pass(tag);
    }
  }

  // The process must not end early, because other ranks need to learn the reason.
  void stay() const {
    const auto limit = Clock::now() + std::chrono::minutes(1);
    while (!options_.stay.empty() && !std::filesystem::exists(options_.stay) &&
           Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  // After the last operation, plans may still change because of the last measurements.
  void settle() const {
    const auto limit = Clock::now() + std::chrono::minutes(1);
    std::string told;
    while (!options_.settle.empty() && !std::filesystem::exists(options_.settle) &&
           Clock::now() < limit) {
      const std::string balance = balance_of(*context_);
      if (balance != told) emit("balance", member("balance", balance));
      told = balance;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  // For each operation, the threads have the tags in an order that differs from rank to rank.
  size_t tag_of(int thread, int operation) const {
    std::vector<size_t> tags(static_cast<size_t>(options_.threads));
    std::iota(tags.begin(), tags.end(), size_t{0});
    std::seed_seq seeds{options_.seed, static_cast<uint32_t>(options_.rank),
                        static_cast<uint32_t>(operation)};
    std::minstd_rand draw(seeds);
    std::shuffle(tags.begin(), tags.end(), draw);
    return tags[static_cast<size_t>(thread)];
  }

  void sleep(const Span& span) {
    if (span.most == 0) return;
    int ms = 0;
    {
      const std::lock_guard lock(draw_mutex_);
      ms = std::uniform_int_distribution<int>(span.least, span.most)(draw_);
    }
    std::this_thread::sleep_for(milliseconds(ms));
  }

  // The parameters of an operation: each size in turn, then each type, then each reduction.
  struct Work {
    Work(const Options& options, int number, int its_tag) : operation(number), tag(its_tag) {
      auto index = static_cast<size_t>(operation);
      const auto in_turn = [&index](const auto& list) {
        const auto& chosen = list[index % list.size()];
        index /= list.size();
        return chosen;
      };
      elements = in_turn(options.elements);
      type = in_turn(options.types);
      reduction = in_turn(options.reductions);
      fold = fold_of(reduction);
      is_average = reduction == "average";
      in_place = options.place == Place::kIn || (options.place == Place::kBoth && index % 2 == 1);
      in_place &= options.collective != Collective::kSendRecv;
      const bool is_shifted = std::filesystem::exists(options.shift_root);
      root = (operation + (is_shifted ? 1 : 0)) % options.size;
      const bool is_root = root == options.rank;
      has_result = options.collective != Collective::kBarrier &&
                   (options.collective != Collective::kReduce || is_root);
      shape = shape_of(options.collective, options.rank, options.size, root, elements);
    }
    int operation;
    int tag;
    size_t elements;
    nezha::DataType type;
    std::string reduction;
    Fold fold;  // kept here, as it is needed for each element
    bool is_average;
    bool in_place;
    int root;
    bool has_result;
    Shape shape;
  };

  void run_operation(int operation, int tag, std::vector<std::byte>& input,
                     std::vector<std::byte>& output) {
    const Work work(options_, operation, tag);
    with_type(work.type, [&](auto t) { run_work<decltype(t)>(work, input, output); });
  }

  // Replaces the pages that lie completely inside the buffer.
  static void remap(std::vector<std::byte>& buffer) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(buffer.data()) + page - 1) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(buffer.data() + buffer.size()) / page * page;
    if (begin >= end) return;
    void* const at = reinterpret_cast<void*>(begin);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(at, end - begin, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) {
      throw std::runtime_error("mmap failed");
    }
  }

  template <typename T>
  void run_work(const Work& work, std::vector<std::byte>& input, std::vector<std::byte>& output) {
    constexpr size_t kGuardBytes = kGuard * sizeof(T);
    const Shape& shape = work.shape;
    const bool is_input_longer = shape.input > shape.output;
    const size_t elements = work.in_place ? std::max(shape.input, shape.output) : shape.output;
    input.resize(work.in_place ? 0 : shape.input * sizeof(T));
    output.resize(elements * sizeof(T) + 2 * kGuardBytes);
    if (options_.remaps) {
      remap(input);
      remap(output);
    }
    std::fill(output.begin(), output.end(), kUntouched);
    auto* result = reinterpret_cast<T*>(output.data() + kGuardBytes);
    T* contribution = reinterpret_cast<T*>(input.data());
    if (work.in_place) {
      contribution = result + (is_input_longer ? 0 : shape.overlay);
      result += is_input_longer ? shape.overlay : 0;
    }
    const Input own(options_.rank, work.operation, work.tag);
    for (size_t i = 0; i < shape.input; ++i) contribution[i] = value<T>(work, own, i);

    const bool reports = work.operation % options_.report == 0;
    if (reports) emit("start", name(work.operation, work.tag));
    const auto start = Clock::now();
    run_collective(work, contribution, result);
    const double seconds = seconds_since(start);

    bool right = work.has_result ? check_result(work, result)
                                 : is_untouched<T>(work, own, output.data() + kGuardBytes);
    for (size_t i = 0; i < kGuardBytes; ++i) {
      right &= output[i] == kUntouched && output[output.size() - 1 - i] == kUntouched;
    }
    for (size_t i = 0; i < input.size() / sizeof(T); ++i) {
      right &= same(contribution[i], value<T>(work, own, i));
    }
    if (!right) {
      emit("wrong", name(work.operation, work.tag));
      ok_ = false;
    }
    if (reports) {
      emit("done", name(work.operation, work.tag) + member("seconds", seconds) +
                       member("rails", rails_of(*context_)) +
                       member("balance", balance_of(*context_)) +
                       (options_.floats ? member("hash", hash(output)) : ""));
    }
  }

  template <typename T>
  void run_collective(const Work& work, const T* input, T* output) {
    const auto set = [&](auto& options) {
      if (!work.in_place) options.setInput(input, work.elements);
      options.setOutput(output, work.elements);
      options.setTag(static_cast<uint32_t>(work.tag));
    };
    switch (options_.collective) {
      case Collective::kAllreduce: {
        nezha::AllreduceOptions options(context_);
        set(options);
        if (options_.algorithm.has_value()) options.setAlgorithm(*options_.algorithm);
        options.setReproducible(options_.reproducible);
        set_reduction<T>(options, work.reduction);
        return nezha::allreduce(options);
      }
      case Collective::kReduce: {
        nezha::ReduceOptions options(context_);
        set(options);
        options.setRoot(work.root);
        set_reduction<T>(options, work.reduction);
        return nezha::reduce(options);
      }
      case Collective::kBroadcast: {
        nezha::BroadcastOptions options(context_);
        set(options);
        options.setRoot(work.root);
        return nezha::broadcast(options);
      }
      case Collective::kBarrier: {
        nezha::BarrierOptions options(context_);
        options.setTag(static_cast<uint32_t>(work.tag));
        return nezha::barrier(options);
      }
      case Collective::kSendRecv:
        return run_exchange(work, input, output);
      default:
        return run_blocks(work, input, output);
    }
  }

  // In every second operation the receive accepts any rank; only one rank sends here.
  template <typename T>
  void run_exchange(const Work& work, const T* input, T* output) {
    const int from = (options_.rank + options_.size - 1) % options_.size;
    nezha::RecvOptions receive(context_);
    receive.setTag(static_cast<uint64_t>(work.tag));
    receive.setOutput(output, work.elements);
    if (work.operation % 2 == 0) {
      receive.setSource(from);
    } else {
      receive.setAnySource();
    }
    nezha::Handle received = nezha::recvAsync(receive);
    nezha::SendOptions send(context_);
    send.setTag(static_cast<uint64_t>(work.tag));
    send.setInput(input, work.elements);
    send.setDestination((options_.rank + 1) % options_.size);
    nezha::send(send);
    received.wait();
    if (received.source() != from) throw std::logic_error("the message is another rank's");
  }

  // The collectives whose vector consists of blocks.
  template <typename T>
  void run_blocks(const Work& work, const T* input, T* output) {
    const Shape& shape = work.shape;
    const auto prepare = [&](auto& options) {
      options.setTag(static_cast<uint32_t>(work.tag));
      if (options_.algorithm.has_value()) options.setAlgorithm(*options_.algorithm);
    };
    switch (options_.collective) {
      case Collective::kAllgather:
      case Collective::kAllgatherv: {
        nezha::AllgatherOptions options(context_);
        prepare(options);
        if (!work.in_place) options.setInput(input, shape.input);
        if (options_.collective == Collective::kAllgather) {
          options.setOutput(output, shape.output);
        } else {
          options.setOutput(output, shape.sent);
        }
        return nezha::allgather(options);
      }
      case Collective::kReduceScatter:
      case Collective::kReduceScatterv: {
        nezha::ReduceScatterOptions options(context_);
        prepare(options);
        set_reduction<T>(options, work.reduction);
        options.setReproducible(options_.reproducible);
        if (options_.collective == Collective::kReduceScatter) {
          options.setInput(input, shape.input);
        } else {
          options.setInput(input, shape.sent);
        }
        options.setOutput(output, shape.output);
        return nezha::reduceScatter(options);
      }
      case Collective::kAlltoall: {
        nezha::AlltoallOptions options(context_);
        prepare(options);
        if (!work.in_place) options.setInput(input, shape.input);
        options.setOutput(output, shape.output);
        return nezha::alltoall(options);
      }
      case Collective::kAlltoallv: {
        nezha::AlltoallvOptions options(context_);
        prepare(options);
        if (!work.in_place) options.setInput(input, shape.sent);
        options.setOutput(output, shape.received);
        return nezha::alltoallv(options);
      }
      default:
        return run_rooted_blocks(work, input, output);
    }
  }

  template <typename T>
  void run_rooted_blocks(const Work& work, const T* input, T* output) {
    const Shape& shape = work.shape;
    const bool is_root = work.root == options_.rank;
    const auto prepare = [&](auto& options) {
      options.setTag(static_cast<uint32_t>(work.tag));
      options.setRoot(work.root);
      if (options_.algorithm.has_value()) options.setAlgorithm(*options_.algorithm);
    };
    const bool shares = work.in_place && is_root;
    switch (options_.collective) {
      case Collective::kGather: {
        nezha::GatherOptions options(context_);
        prepare(options);
        if (!shares) options.setInput(input, shape.input);
        if (is_root) options.setOutput(output, shape.output);
        return nezha::gather(options);
      }
      case Collective::kGatherv: {
        nezha::GathervOptions options(context_);
        prepare(options);
        if (!shares) options.setInput(input, shape.input);
        if (is_root) options.setOutput(output, shape.sent);
        return nezha::gatherv(options);
      }
      case Collective::kScatter: {
        nezha::ScatterOptions options(context_);
        prepare(options);
        if (is_root) options.setInput(input, shape.input);
        if (!shares) options.setOutput(output, shape.output);
        return nezha::scatter(options);
      }
      default: {
        nezha::ScattervOptions options(context_);
        prepare(options);
        if (is_root) options.setInput(input, shape.sent);
        if (!shares) options.setOutput(output, shape.output);
        return nezha::scatterv(options);
      }
    }
  }

  // Checks the output of a rank that has no result.
  template <typename T>
  bool is_untouched(const Work& work, const Input& own, const std::byte* output) const {
    for (size_t i = 0; i < work.elements * sizeof(T); i += sizeof(T)) {
      T is;
      std::memcpy(&is, output + i, sizeof is);
      const bool right = work.in_place
                             ? same(is, value<T>(work, own, i / sizeof(T)))
                             : std::all_of(output + i, output + i + sizeof is,
                                           [](std::byte byte) { return byte == kUntouched; });
      if (!right) return false;
    }
    return true;
  }

  template <typename T>
  void set_reduction(nezha::ReductionOptions& options, const std::string& reduction) const {
    if (reduction == kThrowing && options_.rank == 1) {
      options.setReduceFunction([](void*, const void*, const void*, size_t) {
        throw std::runtime_error("this function throws");
      });
    } else if (reduction == kThrowing || reduction == "custom") {
      options.setReduceFunction(&add<T>);
    } else {
      options.setOperation(choose(by_name<nezha::ReduceOperation>(), reduction));
    }
  }

  template <typename T>
  T value(const Work& work, const Input& input, size_t element) const {
    if constexpr (std::is_same_v<T, float>) {
      if (options_.floats) return input.any(element);
    }
    return element_of<T>(input, work.fold, element);
  }

  template <typename T>
  static uint64_t bits_of(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }

  template <typename T>
  static bool same(T a, T b) {
    return bits_of(a) == bits_of(b);
  }

  // Describes how the element is wrong; empty if it is right. Moved data comes from one input.
  template <typename T>
  std::string compare(const Work& work, const std::vector<Input>& inputs, size_t element,
                      T is) const {
    if (inputs.size() == 1 && options_.size > 1) {
      const T expected = value<T>(work, inputs[0], element);
      return same(is, expected) ? "" : difference(is, expected);
    }
    Wide<T> all = wide(value<T>(work, inputs[0], element));
    double magnitude = std::abs(static_cast<double>(all));
    for (size_t rank = 1; rank < inputs.size(); ++rank) {
      const Wide<T> one = wide(value<T>(work, inputs[rank], element));
      all = combine<T>(work.fold, all, one);
      magnitude += std::abs(static_cast<double>(one));
    }
    const T expected = work.is_average ? average<T>(all, options_.size) : narrow<T>(all);
    // The largest error from rounding to float at each addition.
    const double error = magnitude * 6e-8 * options_.size;
    const bool right =
        options_.floats
            ? std::abs(static_cast<double>(wide(is)) - static_cast<double>(all)) <= error
            : same(is, expected);
    return right ? "" : difference(is, expected);
  }

  template <typename T>
  static std::string difference(T is, T expected) {
    return member("is", json_string(std::to_string(wide(is)))) +
           member("expected", json_string(std::to_string(wide(expected))));
  }

  // Reports the first wrong element.
  template <typename T>
  bool check_result(const Work& work, const T* result) const {
    size_t wrong = 0;
    size_t at = 0;
    for (const Shape::Run& run : work.shape.runs) {
      std::vector<Input> inputs;
      for (int rank = 0; rank < options_.size; ++rank) {
        if (run.rank != -1 && rank != run.rank) continue;
        inputs.emplace_back(rank, work.operation, work.tag);
      }
      for (size_t i = 0; i < run.count; ++i, ++at) {
        const std::string difference = compare(work, inputs, run.from + i, result[at]);
        if (difference.empty() || wrong++ > 0) continue;
        emit("wrong", name(work.operation, work.tag) +
                          member("type", json_string(nameOf(work.type))) +
                          member("reduction", json_string(work.reduction)) +
                          member("element", static_cast<double>(at)) + difference);
      }
    }
    if (wrong > 0) {
      emit("wrong",
           name(work.operation, work.tag) + member("elements", static_cast<double>(wrong)));
    }
    return wrong == 0;
  }

  // Only rank 0 looks for the file; all ranks learn of it from the same sum.
  bool stop_requested() {
    std::error_code ignored;
    float flag = options_.rank == 0 && std::filesystem::exists(options_.until, ignored) ? 1.0F : 0;
    nezha::AllreduceOptions allreduce(context_);
    allreduce.setOutput(&flag, 1);
    allreduce.setTag(kStopTag);
    if (options_.algorithm.has_value()) allreduce.setAlgorithm(*options_.algorithm);
    nezha::allreduce(allreduce);
    return flag != 0;
  }

  static std::string name(int operation, int tag) {
    return member("operation", operation) + member("tag", tag);
  }

  // FNV-1a.
  static std::string hash(const std::vector<std::byte>& bytes) {
    uint64_t hash = 0xcbf29ce484222325U;
    for (const std::byte byte : bytes) {
      hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3U;
    }
    return json_string(std::to_string(hash));
  }

  const Options& options_;
  std::shared_ptr<nezha::Context> context_;
  Turns turns_;
  std::atomic<bool> ok_{true};
  std::mutex draw_mutex_;
  std::mt19937 draw_;
};

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const auto start = Clock::now();
  try {
    return Job(options).run() ? 0 : 1;
  } catch (const std::exception& error) {
    emit("error", error_members(error) + member("seconds", seconds_since(start)));
    return 1;
  }
}

}  // namespace
}  // namespace nezha::worker

int main(int argc, char** argv) { return nezha::worker::run(argc, argv); }
