#include "context/context_impl.h"

#include <gloo/rendezvous/store.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/environment.h"
#include "common/log.h"
#include "context/rails.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

// How long one question to the store may take.
constexpr Nanos kStorePatience = 200 * kMillisecond;

Nanos to_nanos(std::chrono::milliseconds time) {
  // A deadline that is further away than any run lasts: what is larger would overflow.
  constexpr std::chrono::hours kForever{24 * 365};
  return std::chrono::nanoseconds(std::min<std::chrono::milliseconds>(time, kForever)).count();
}

// All contexts of the process share one, so that they share devices and connections.
std::shared_ptr<Endpoint> shared_endpoint() {
  static std::mutex mutex;
  static std::weak_ptr<Endpoint> shared;
  const std::lock_guard lock(mutex);
  if (auto endpoint = shared.lock()) return endpoint;
  auto made = Endpoint::create();
  if (!made.ok()) throw IoError(made.status().ToString());
  shared = *made;
  return *made;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

absl::string_view plan_name(Plan plan) { return plan == Plan::kStripe ? "stripe" : "slice"; }

}  // namespace

ContextImpl::ContextImpl(std::shared_ptr<Store> store, ContextOptions options)
    : store_(std::move(store)), options_(std::move(options)) {
  const auto refuse = [](const std::string& why) { throw InvalidArgument("nezha: " + why); };
  if (const absl::Status status = check_environment(); !status.ok()) {
    refuse(std::string(status.message()));
  }
  if (store_ == nullptr) refuse("Context::create: no store");
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size) {
    refuse(absl::StrCat("rank ", options_.rank, " of a context of ", options_.size, " ranks"));
  }
  if (options_.timeout.count() <= 0) {
    refuse(absl::StrCat("a timeout of ", options_.timeout.count(), " ms; give a positive one"));
  }
  if (options_.rails.empty()) refuse("no rails; name them, such as tcp:eth0");
  if (!options_.shares.empty() && options_.plan != Plan::kSlice) {
    refuse("shares are for the slice plan; stripes learn theirs");
  }
  if (options_.shares.empty()) options_.shares.assign(options_.rails.size(), 1.0);
  if (options_.shares.size() != options_.rails.size() ||
      std::any_of(options_.shares.begin(), options_.shares.end(),
                  [](double share) { return !(share > 0 && share < 1e12); })) {
    refuse(absl::StrCat("shares ", absl::StrJoin(options_.shares, ","), " for ",
                        options_.rails.size(), " rails: one positive number for each"));
  }
}

ContextImpl::~ContextImpl() {
  if (endpoint_ == nullptr) return;
  Progress::Guard guard(endpoint_->progress());
  endpoint_->leave(job_);
  endpoint_->progress().run_deferred();
}

// ---- Joining -----------------------------------------------------------------------------------

void ContextImpl::join() {
  const Nanos deadline = now() + to_nanos(options_.timeout);
  endpoint_ = shared_endpoint();
  open_devices();
  // The id of the context is rank 0's choice; until it is known nobody's connection is accepted.
  if (options_.rank == 0) {
    job_ = UniqueId::random();
  } else {
    const auto rank0 = read_record(0, deadline);
    if (!rank0.ok()) raise(rank0.status());
    check_agreement(*rank0);
    job_ = rank0->job;
  }
  {
    Progress::Guard guard(endpoint_->progress());
    endpoint_->join(job_, this);
    const auto size = static_cast<size_t>(options_.size);
    group_ = {.rank = options_.rank,
              .size = options_.size,
              .context = job_.low,
              .channels = std::vector<Channel*>(size, nullptr),
              .pool = &endpoint_->pool()};
    group_.rails = 0;
    for (const Rail rail : rails_) group_.rails |= rail_bit(rail);
  }
  const std::string record = own_record().encode();
  const std::lock_guard lock(store_mutex_);
  try {
    store_->set(Record::key(options_.rank), std::vector<char>(record.begin(), record.end()));
  } catch (const std::exception& error) {
    throw IoError(prefixed(absl::StrCat("publishing this rank in the store: ", error.what())));
  }
}

void ContextImpl::open_devices() {
  Progress::Guard guard(endpoint_->progress());
  for (const std::string& uri : options_.rails) {
    const auto make = device_factory(uri);
    const absl::StatusOr<Rail> rail =
        make.ok() ? endpoint_->open_device(uri, *make) : absl::StatusOr<Rail>(make.status());
    if (!rail.ok()) {
      throw InvalidArgument(
          prefixed(absl::StrCat("rail '", uri, "': ", std::string(rail.status().message()))));
    }
    if (std::find(rails_.begin(), rails_.end(), *rail) != rails_.end()) {
      throw InvalidArgument(prefixed(absl::StrCat("rail '", uri, "' is named twice")));
    }
    rails_.push_back(*rail);
  }
}

std::string ContextImpl::settings() const {
  std::string text = absl::StrCat("plan=", plan_name(options_.plan));
  if (options_.plan == Plan::kSlice) {
    absl::StrAppend(&text, " shares=", absl::StrJoin(options_.shares, ","));
  }
  return text;
}

Record ContextImpl::own_record() const {
  Record record;
  record.job = job_;
  record.process = endpoint_->process();
  record.host = host_name();
  record.pid = getpid();
  record.size = options_.size;
  record.settings = settings();
  Progress::Guard guard(endpoint_->progress());
  for (const Rail rail : rails_) {
    const Device* device = endpoint_->device(rail);
    record.devices[device->name()] = device->address();
  }
  return record;
}

absl::StatusOr<Record> ContextImpl::read_record(int rank, Nanos deadline) {
  const std::string key = Record::key(rank);
  const auto absent = [&](absl::string_view why) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank, " has not appeared in the store (key '", key, "'): ", why));
  };
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
  const std::unique_lock lock(store_mutex_, until);
  if (!lock.owns_lock()) return absent("other threads were waiting for other ranks");
  std::vector<char> text;
  for (bool found = false; !found;) {
    // Not all of it at once: another rank may tell meanwhile that the context is broken.
    {
      Progress::Guard guard(endpoint_->progress());
      if (!broken_.ok()) return broken_;
    }
    const Nanos begin = now();
    const Nanos patience = std::clamp<Nanos>(deadline - begin, kMillisecond, kStorePatience);
    try {
      store_->wait({key}, std::chrono::milliseconds(patience / kMillisecond));
      text = store_->get(key);
      found = true;
    } catch (const std::exception& error) {
      const bool failed_early = now() - begin < patience / 2;
      if (failed_early || now() >= deadline) return absent(error.what());
    }
  }
  auto record = Record::decode(absl::string_view(text.data(), text.size()));
  if (record.ok()) return record;
  return absl::InvalidArgumentError(absl::StrCat(
      "the record of rank ", rank, " in the store is bad: ", record.status().message()));
}

void ContextImpl::check_agreement(const Record& rank0) const {
  const auto differ = [&](absl::string_view what, absl::string_view here, absl::string_view there) {
    throw IoError(prefixed(absl::StrCat("the ranks' options differ: ", what, " is '", here,
                                        "' here and '", there, "' at rank 0")));
  };
  if (rank0.size != options_.size) {
    differ("the size", std::to_string(options_.size), std::to_string(rank0.size));
  }
  if (rank0.settings != settings()) differ("the plan", settings(), rank0.settings);
}

absl::Status ContextImpl::resolve(const std::vector<int>& peers, Nanos deadline) {
  const auto known = [&](int rank) {
    Progress::Guard guard(endpoint_->progress());
    return group_.channels[static_cast<size_t>(rank)] != nullptr;
  };
  for (const int rank : peers) {
    if (known(rank)) continue;
    if (absl::Status status = resolve(rank, deadline); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ContextImpl::resolve(int rank, Nanos deadline) {
  const auto record = read_record(rank, deadline);
  if (!record.ok()) return record.status();
  Progress::Guard guard(endpoint_->progress());
  const bool in_common = std::any_of(rails_.begin(), rails_.end(), [&](Rail rail) {
    return record->devices.contains(endpoint_->device(rail)->name());
  });
  if (!in_common) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no rail in common with rank ", rank, " (", record->host,
        "), which has: ", absl::StrJoin(record->devices, ", ", absl::PairFormatter(" at ")),
        "; rails are matched by name (?rail=NAME)"));
  }
  Channel& channel = endpoint_->channel(record->process);
  channel.set_peer(absl::StrCat("rank ", rank, " (", record->host, ", pid ", record->pid, ")"),
                   job_, record->devices);
  group_.channels[static_cast<size_t>(rank)] = &channel;
  return absl::OkStatus();
}

// ---- Running -----------------------------------------------------------------------------------

Operation ContextImpl::check(const AllreduceOptions& options) const {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(prefixed(absl::StrCat("allreduce: ", why)));
  };
  Operation op;
  op.type = options.output_type_;
  op.operation = options.operation_;
  op.element_size = size_of(op.type);
  op.elements = options.output_elements_;
  op.tag = options.tag_;
  op.output = static_cast<std::byte*>(options.output_);
  op.input = options.input_ == nullptr ? op.output : static_cast<const std::byte*>(options.input_);
  if (op.output == nullptr && op.elements > 0) refuse("no output");
  if (options.input_ != nullptr && options.elements_ != op.elements) {
    refuse(absl::StrCat("an input of ", options.elements_, " elements and an output of ",
                        op.elements));
  }
  if (options.input_ != nullptr && options.type_ != options.output_type_) {
    refuse("the input and the output have different element types");
  }
  if (op.input != op.output && op.input < op.output + op.bytes() &&
      op.output < op.input + op.bytes()) {
    refuse("the input and the output overlap without being the same");
  }
  return op;
}

void ContextImpl::allreduce(const AllreduceOptions& options) {
  const Operation op = check(options);
  const auto timeout = options.timeout_.count() > 0 ? options.timeout_ : options_.timeout;
  const Nanos deadline = now() + to_nanos(timeout);
  if (options_.size == 1) {
    if (op.input != op.output && op.bytes() > 0) std::memcpy(op.output, op.input, op.bytes());
    return;
  }
  EnginePlan plan;
  plan.algorithm = HostsEngine::choose(options.algorithm_, options_.size, op);
  const absl::Status resolved = resolve(hosts_.peers(group_, plan), deadline);

  Progress::Guard guard(endpoint_->progress());
  if (!resolved.ok()) break_context(resolved, static_cast<uint32_t>(options_.rank));
  if (!broken_.ok()) raise(broken_);
  Running running(*this);
  start(running, op, plan);
  if (!endpoint_->progress().wait(guard, running.waiter, deadline)) {
    std::string waiting;
    for (const auto& task : running.tasks) {
      if (task->poll() == Task::State::kRunning) absl::StrAppend(&waiting, "; ", task->describe());
    }
    break_context(absl::DeadlineExceededError(absl::StrCat(
                      "allreduce (tag ", op.tag, ", ", op.bytes(),
                      " bytes) was not complete after ", timeout.count(), " ms", waiting)),
                  static_cast<uint32_t>(options_.rank));
  }
  running.tasks.clear();
  endpoint_->progress().run_deferred();
  if (!running.status.ok()) raise(running.status);
}

std::vector<Slice> ContextImpl::slices(const Operation& operation) const {
  if (options_.plan == Plan::kStripe) return {{operation, {}, 0, group_.rails}};
  std::vector<Slice> slices;
  const double total = std::accumulate(options_.shares.begin(), options_.shares.end(), 0.0);
  double sum = 0;
  uint32_t begin = 0;
  for (size_t i = 0; i < rails_.size(); ++i) {
    sum += options_.shares[i];
    const auto end = i + 1 == rails_.size()
                         ? SliceBounds::kWhole
                         : static_cast<uint32_t>(sum / total * SliceBounds::kWhole);
    slices.push_back({operation, {begin, end}, static_cast<uint8_t>(i), rail_bit(rails_[i])});
    begin = end;
  }
  return slices;
}

void ContextImpl::start(Running& running, const Operation& operation, const EnginePlan& plan) {
  for (const Slice& slice : slices(operation)) {
    auto task = hosts_.start(group_, slice, plan, running);
    if (!task.ok()) return break_context(task.status(), static_cast<uint32_t>(options_.rank));
    running.tasks.push_back(*std::move(task));
    if (!running.status.ok()) return;  // it failed at once
  }
  running.started = true;
  running.finish_if_done();
}

void ContextImpl::Running::on_finished(Task& task) {
  if (task.poll() == Task::State::kFailed) {
    context.break_context(task.status(), static_cast<uint32_t>(context.options_.rank));
  } else {
    finish_if_done();
  }
}

void ContextImpl::Running::finish_if_done() {
  if (!started) return;
  const bool done = std::all_of(tasks.begin(), tasks.end(), [](const auto& task) {
    return task->poll() == Task::State::kDone;
  });
  if (done) context.endpoint_->progress().finish(waiter);
}

void ContextImpl::Running::fail(const absl::Status& why) {
  for (auto& task : tasks) task->freeze();
  if (status.ok()) status = why;
  context.endpoint_->progress().finish(waiter);
}

// ---- Failure -----------------------------------------------------------------------------------

void ContextImpl::break_context(const absl::Status& why, uint32_t first_rank) {
  if (!broken_.ok()) return;
  broken_ = why;
  log().info("{}", prefixed(why.ToString()));
  for (Running* running : running_) running->fail(why);
  const std::string reason =
      first_rank == static_cast<uint32_t>(options_.rank)
          ? absl::StrCat("rank ", first_rank, ": ", std::string(why.message()))
          : std::string(why.message());
  endpoint_->broadcast_abort({job_, first_rank, reason});
}

void ContextImpl::on_abort(const wire::Abort& abort) {
  break_context(absl::AbortedError(abort.reason), abort.rank);
}

void ContextImpl::raise(const absl::Status& why) const {
  const std::string text = prefixed(std::string(why.message()));
  if (absl::IsDeadlineExceeded(why)) throw TimeoutError(text);
  throw IoError(text);
}

std::string ContextImpl::prefixed(absl::string_view text) const {
  return absl::StrCat("nezha: rank ", options_.rank, " of ", options_.size, ": ", text);
}

std::vector<RailStats> ContextImpl::rails() const {
  Progress::Guard guard(endpoint_->progress());
  std::vector<RailStats> stats;
  for (const Rail rail : rails_) {
    const Device* device = endpoint_->device(rail);
    const RailCounters& counters = device->counters();
    stats.push_back({device->name(), counters.bytes_sent, counters.bytes_received,
                     counters.segments_resent, counters.failures, counters.rate});
  }
  return stats;
}

}  // namespace nezha
