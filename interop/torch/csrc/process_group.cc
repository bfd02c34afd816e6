// SPDX-License-Identifier: Apache-2.0
#include "interop/torch/csrc/process_group.h"

#include <Python.h>
#include <nezha/barrier.h>
#include <nezha/errors.h>
#include <nezha/send_recv.h>

#include <utility>

#include "interop/torch/csrc/launch.h"
#include "interop/torch/csrc/store.h"

namespace nezha_torch {

using std::chrono::milliseconds;

namespace {

constexpr uint64_t kBreakTag = uint64_t{1} << 41;  // no message has this tag

// Returns the prefix of the keys by which the ranks of a group meet. A rank may join groups of one
// name in one store several times, for example after an error, and each time has keys of its own.
std::string prefix(c10d::Store& store, int rank) {
  const int64_t time = store.add("nezha/joined/" + std::to_string(rank), 1);
  return "nezha/" + std::to_string(time) + "/";
}

}  // namespace

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           milliseconds timeout)
    : Backend(rank, size), timeout_(timeout) {
  const auto meeting = std::make_shared<Store>(store, prefix(*store, rank));
  nezha::ContextOptions options;
  options.rank = rank;
  options.size = size;
  options.timeout = timeout;
  context_ = nezha::Context::create(meeting, options);
  // Reads all records now. The store may be gone when two ranks first communicate later, since it
  // ends with one of the ranks.
  nezha::barrier(nezha::BarrierOptions(context_));
  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back("rank" + std::to_string(r));
  meeting->leave(keys);
  init();
}

ProcessGroup::~ProcessGroup() { leave(); }

std::shared_ptr<nezha::Context> ProcessGroup::context() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(context_ != nullptr, "rank ", rank_,
              " has left this process group, by shutdown() or abort(): make a new one");
  return context_;
}

void ProcessGroup::leave() {
  const bool has_lock = Py_IsInitialized() != 0 && PyGILState_Check() != 0;
  PyThreadState* state = has_lock ? PyEval_SaveThread() : nullptr;
  // An operation of several steps keeps the context until it is over.
  for (const auto& work : in_flight_->collectives()) {
    if (work->is_composite()) work->abort();
  }
  in_flight_->drop_lists();
  std::shared_ptr<nezha::Context> context;
  {
    const std::lock_guard lock(mutex_);
    context.swap(context_);
  }
  context.reset();
  if (has_lock) PyEval_RestoreThread(state);
}

void ProcessGroup::abort() {
  std::shared_ptr<nezha::Context> context;
  {
    const std::lock_guard lock(mutex_);
    context = context_;
  }
  if (context != nullptr) break_up(context);
  leave();
}

// A cancelled operation breaks its context.
void ProcessGroup::break_up(const std::shared_ptr<nezha::Context>& context) {
  nezha::RecvOptions recv(context);
  recv.setSource(context->rank());
  recv.setTag(kBreakTag);
  recv.setOutput(nullptr, 0);
  try {
    nezha::recvAsync(recv).cancel();
  } catch (const nezha::IoError&) {
    // The context is broken already.
  }
}

milliseconds ProcessGroup::deadline(milliseconds given) const {
  return given == c10d::kUnsetTimeout ? timeout_.load() : given;
}

c10::intrusive_ptr<Work> ProcessGroup::make(c10d::OpType type, const char* title,
                                            const Tensors& inputs, std::vector<Tensors> outputs) {
  Workers::get().prepare();
  if (!c10d::isP2POp(type)) ++sequence_;
  auto work = c10::make_intrusive<Work>(in_flight_, rank_, type, title, inputs);
  work->outputs = std::move(outputs);
  return work;
}

WorkPtr ProcessGroup::barrier(const c10d::BarrierOptions& options) {
  auto work = make(c10d::OpType::BARRIER, "nezha:barrier", {}, {});
  work->before_end = [earlier = in_flight_->collectives()] {
    for (const auto& other : earlier) other->wait(kNoTimeout);
  };
  nezha::BarrierOptions barrier(context());
  return begin(std::move(work), barrier, options.timeout, nezha::barrierAsync);
}

#if NEZHA_TORCH_AT_LEAST(2, 1)
WorkPtr ProcessGroup::all_of(const char* title, std::vector<c10::intrusive_ptr<Work>> works) {
  Workers::get().prepare();
  auto work =
      c10::make_intrusive<Work>(in_flight_, rank_, c10d::OpType::COALESCED, title, Tensors());
  for (const auto& part : works) {
    work->outputs.insert(work->outputs.end(), part->outputs.begin(), part->outputs.end());
  }
  work->on_abort = [works] {
    for (const auto& part : works) part->abort();
  };
  work->begin([works = std::move(works)] {
    for (const auto& part : works) part->wait(kNoTimeout);
  });
  return work;
}

void ProcessGroup::startCoalescing() { in_flight_->start_list(); }

WorkPtr ProcessGroup::endCoalescing() { return all_of("nezha:coalesced", in_flight_->end_list()); }
#endif

}  // namespace nezha_torch
