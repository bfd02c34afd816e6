// SPDX-License-Identifier: Apache-2.0
// One rank of a job in which each operation has a tag that no other has, as if a counter gave the
// tags: collectives of several kinds, sends and receives. Each of several threads has several
// operations in flight. Every result is checked.
//
// fresh_tags STORE RAILS TAGS: STORE is the rendezvous' directory; commas separate the rails. RANK
// and SIZE come from the environment. Prints the resident memory of the process in KiB after a
// fifth of the tags, and after all: {"before": 5000, "after": 5000}. Exit status: 0; 1 a wrong
// result or an error; 2 a bad command line.
#include <gloo/rendezvous/file_store.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nezha/allgather.h"
#include "nezha/allreduce.h"
#include "nezha/broadcast.h"
#include "nezha/context.h"
#include "nezha/handle.h"
#include "nezha/reduce.h"
#include "nezha/send_recv.h"

namespace {

using Context = std::shared_ptr<nezha::Context>;

constexpr uint32_t kThreads = 4;
constexpr size_t kInFlight = 8;  // per thread

// The operations of one tag: a collective and, for some tags, a send and a receive. The object must
// not move until they are over.
class Operation {
 public:
  Operation(const Context& context, uint32_t tag)
      : rank_(context->rank()),
        size_(context->size()),
        tag_(static_cast<int64_t>(tag)),
        own_(tag_ + rank_),
        sent_(own_),
        received_(tag_ + source()),
        all_(static_cast<size_t>(size_)) {
    // Each thread runs operations of all kinds.
    switch (tag / kThreads % 8) {
      case 0:
        begin_broadcast(context, tag);
        break;
      case 1:
        begin_reduce(context, tag);
        break;
      case 2:
        begin_allgather(context, tag);
        break;
      case 3:
        begin_exchange(context, tag);
        [[fallthrough]];
      default:
        begin_allreduce(context, tag);
        break;
    }
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void finish() {
    nezha::waitAll(handles_);
    if (own_ != expected_) throw std::logic_error("tag " + std::to_string(tag_) + ": wrong");
    if (received_ != tag_ + source()) {
      throw std::logic_error("tag " + std::to_string(tag_) + ": wrong in a recv");
    }
    for (size_t rank = 0; is_gathered_ && rank < all_.size(); ++rank) {
      if (all_[rank] == tag_ + static_cast<int64_t>(rank)) continue;
      throw std::logic_error("tag " + std::to_string(tag_) + ": wrong in an allgather");
    }
  }

 private:
  int source() const { return (rank_ + size_ - 1) % size_; }
  int64_t sum() const { return size_ * tag_ + size_ * (size_ - 1) / 2; }

  void begin_allreduce(const Context& context, uint32_t tag) {
    nezha::AllreduceOptions options(context);
    options.setOutput(&own_, 1);
    options.setTag(tag);
    expected_ = sum();
    handles_.push_back(nezha::allreduceAsync(options));
  }
  void begin_broadcast(const Context& context, uint32_t tag) {
    const int root = static_cast<int>(tag) % size_;
    nezha::BroadcastOptions options(context);
    options.setRoot(root);
    options.setOutput(&own_, 1);
    options.setTag(tag);
    expected_ = tag_ + root;
    handles_.push_back(nezha::broadcastAsync(options));
  }
  void begin_reduce(const Context& context, uint32_t tag) {
    const int root = static_cast<int>(tag) % size_;
    nezha::ReduceOptions options(context);
    options.setRoot(root);
    options.setTag(tag);
    if (rank_ == root) {
      options.setOutput(&own_, 1);
    } else {
      options.setInput(&own_, 1);
    }
    expected_ = rank_ == root ? sum() : own_;
    handles_.push_back(nezha::reduceAsync(options));
  }
  void begin_allgather(const Context& context, uint32_t tag) {
    nezha::AllgatherOptions options(context);
    options.setInput(&own_, 1);
    options.setOutput(all_.data(), all_.size());
    options.setTag(tag);
    expected_ = own_;
    is_gathered_ = true;
    handles_.push_back(nezha::allgatherAsync(options));
  }
  void begin_exchange(const Context& context, uint32_t tag) {
    received_ = -1;
    nezha::SendOptions send(context);
    send.setInput(&sent_, 1);
    send.setDestination((rank_ + 1) % size_);
    send.setTag(tag);
    handles_.push_back(nezha::sendAsync(send));
    nezha::RecvOptions receive(context);
    receive.setOutput(&received_, 1);
    receive.setSource(source());
    receive.setTag(tag);
    handles_.push_back(nezha::recvAsync(receive));
  }

  const int rank_;
  const int size_;
  const int64_t tag_;
  int64_t own_;
  const int64_t sent_;
  int64_t received_;
  int64_t expected_ = 0;
  std::vector<int64_t> all_;
  bool is_gathered_ = false;
  std::vector<nezha::Handle> handles_;
};

// Runs those of the tags first .. last - 1 that belong to this thread.
void run_thread(const Context& context, uint32_t thread, uint32_t first, uint32_t last) {
  std::deque<std::unique_ptr<Operation>> in_flight;
  for (uint32_t tag = first + thread; tag < last; tag += kThreads) {
    in_flight.push_back(std::make_unique<Operation>(context, tag));
    if (in_flight.size() < kInFlight) continue;
    in_flight.front()->finish();
    in_flight.pop_front();
  }
  for (const auto& operation : in_flight) operation->finish();
}

void run_tags(const Context& context, uint32_t first, uint32_t last) {
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      try {
        run_thread(context, thread, first, last);
      } catch (const std::exception& error) {
        // The other threads may wait for messages that will never come.
        std::fprintf(stderr, "fresh_tags: %s\n", error.what());
        std::quick_exit(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int64_t resident_kib() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  if (!(file >> size >> resident)) throw std::runtime_error("/proc/self/statm cannot be read");
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

void run(char** argv) {
  const auto tags = static_cast<uint32_t>(std::stoul(argv[3]));
  nezha::ContextOptions options;
  std::istringstream rails(argv[2]);
  for (std::string rail; std::getline(rails, rail, ',');) options.rails.push_back(rail);
  options.rank = std::atoi(std::getenv("RANK"));
  options.size = std::atoi(std::getenv("SIZE"));
  const Context context =
      nezha::Context::create(std::make_shared<gloo::rendezvous::FileStore>(argv[1]), options);
  run_tags(context, 0, tags / 5);
  const int64_t before = resident_kib();
  run_tags(context, tags / 5, tags);
  std::printf("{\"before\": %lld, \"after\": %lld}\n", static_cast<long long>(before),
              static_cast<long long>(resident_kib()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("fresh_tags STORE RAILS TAGS\n", stderr);
    return 2;
  }
  try {
    run(argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fresh_tags: %s\n", error.what());
    return 1;
  }
}
