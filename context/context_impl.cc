#include "context/context_impl.h"

#include <gloo/rendezvous/store.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/environment.h"
#include "common/launch.h"
#include "common/log.h"
#include "context/rails.h"
#include "context/raise.h"
#include "nezha/errors.h"

namespace nezha {
namespace {

// How long one question to the store may take.
constexpr Nanos kStorePatience = 200 * kMillisecond;

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
    : store_(std::move(store)),
      options_(std::move(options)),
      rank_of_(absl::StrCat("rank ", options_.rank, " of ", options_.size)) {
  const auto refuse = [](const std::string& why) { throw InvalidArgument("nezha: " + why); };
  if (const absl::Status status = check_environment(); !status.ok()) {
    refuse(std::string(status.message()));
  }
  if (store_ == nullptr) refuse("Context::create: no store");
  if (const absl::Status status = complete_rank_and_size(options_.rank, options_.size);
      !status.ok()) {
    refuse(std::string(status.message()));
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
  {
    Progress::Guard guard(endpoint_->progress());
    if (!running_.empty()) {
      break_context(absl::CancelledError("the context was destroyed with operations in flight"),
                    static_cast<uint32_t>(options_.rank));
    }
    closing_ = true;
  }
  if (starter_.joinable()) starter_.join();
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
    if (!rank0.ok()) raise(rank_of_, rank0.status());
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
    throw IoError(
        prefixed(rank_of_, absl::StrCat("publishing this rank in the store: ", error.what())));
  }
}

void ContextImpl::open_devices() {
  Progress::Guard guard(endpoint_->progress());
  for (const std::string& uri : options_.rails) {
    const auto make = device_factory(uri);
    const absl::StatusOr<Rail> rail =
        make.ok() ? endpoint_->open_device(uri, *make) : absl::StatusOr<Rail>(make.status());
    if (!rail.ok()) {
      throw InvalidArgument(prefixed(
          rank_of_, absl::StrCat("rail '", uri, "': ", std::string(rail.status().message()))));
    }
    if (std::find(rails_.begin(), rails_.end(), *rail) != rails_.end()) {
      throw InvalidArgument(prefixed(rank_of_, absl::StrCat("rail '", uri, "' is named twice")));
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
    throw IoError(prefixed(rank_of_, absl::StrCat("the ranks' options differ: ", what, " is '",
                                                  here, "' here and '", there, "' at rank 0")));
  };
  if (rank0.size != options_.size) {
    differ("the size", std::to_string(options_.size), std::to_string(rank0.size));
  }
  if (rank0.settings != settings()) differ("the plan", settings(), rank0.settings);
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

namespace {

bool overlap(const void* a, const void* b, size_t bytes) {
  const auto* x = static_cast<const std::byte*>(a);
  const auto* y = static_cast<const std::byte*>(b);
  return x < y + bytes && y < x + bytes;
}

}  // namespace

void ContextImpl::check(const AllreduceOptions& options) const {
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(prefixed(rank_of_, absl::StrCat("allreduce: ", why)));
  };
  const auto& inputs = options.inputs_;
  const auto& outputs = options.outputs_;
  if (outputs.empty()) refuse("no output; set one");
  if (name_of(options.operation_) == nullptr) {
    refuse(absl::StrCat("there is no operation ", static_cast<int>(options.operation_)));
  }
  if (options.operation_ == ReduceOperation::kCustom && options.function_ == nullptr) {
    refuse("the operation is custom and has no reduce function");
  }
  if (!inputs.empty() && options.elements_ != options.output_elements_) {
    refuse(absl::StrCat("inputs of ", options.elements_, " elements and outputs of ",
                        options.output_elements_));
  }
  if (!inputs.empty() && options.type_ != options.output_type_) {
    refuse("the inputs and the outputs have different element types");
  }
  if (options.output_elements_ == 0) return;
  const size_t size = size_of(options.output_type_);
  if (options.output_elements_ > std::numeric_limits<ptrdiff_t>::max() / size) {
    refuse(absl::StrCat(options.output_elements_, " elements of ", size,
                        " bytes are more than memory has"));
  }
  const size_t bytes = options.output_elements_ * size;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) refuse(absl::StrCat("input ", i, " is a null pointer"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr) refuse(absl::StrCat("output ", i, " is a null pointer"));
    for (size_t j = 0; j < i; ++j) {
      if (overlap(outputs[i], outputs[j], bytes)) {
        refuse(absl::StrCat("outputs ", j, " and ", i, " overlap"));
      }
    }
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (inputs[j] != outputs[i] && overlap(inputs[j], outputs[i], bytes)) {
        refuse(absl::StrCat("input ", j, " and output ", i, " overlap without being the same"));
      }
    }
  }
}

RunningOperation::Request ContextImpl::request(const AllreduceOptions& options) const {
  RunningOperation::Request request;
  Operation& op = request.operation;
  op.type = options.output_type_;
  op.operation = options.operation_;
  op.commutative = options.commutative_;
  op.reproducible = options.reproducible_;
  op.element_size = size_of(op.type);
  op.elements = options.output_elements_;
  op.tag = options.tag_;
  const auto algorithm = HostsEngine::choose(options.algorithm_, options_.size, op);
  if (!algorithm.ok()) {
    const std::string why = absl::StrCat("allreduce: ", algorithm.status().message());
    throw InvalidArgument(prefixed(rank_of_, why));
  }
  request.plan.algorithm = *algorithm;
  if (op.operation == ReduceOperation::kCustom) request.function = options.function_;
  op.output = static_cast<std::byte*>(options.outputs_.front());
  for (size_t i = 1; i < options.outputs_.size(); ++i) {
    request.copies.push_back(static_cast<std::byte*>(options.outputs_[i]));
  }
  fold_inputs(options, request);
  request.name = absl::StrCat("allreduce (tag ", op.tag, ", ", op.bytes(), " bytes)");
  const auto timeout = options.timeout_.count() > 0 ? options.timeout_ : options_.timeout;
  request.deadline = now() + to_nanos(timeout);
  request.timeout = absl::StrCat(timeout.count(), " ms");
  return request;
}

// Several inputs become one: their sum, in the order in which they were given.
void ContextImpl::fold_inputs(const AllreduceOptions& options,
                              RunningOperation::Request& request) const {
  Operation& op = request.operation;
  std::vector<const void*> inputs = options.inputs_;
  if (inputs.empty()) inputs.assign(options.outputs_.begin(), options.outputs_.end());
  op.input = static_cast<const std::byte*>(inputs.front());
  if (inputs.size() == 1 || op.elements == 0) return;
  request.folded = endpoint_->pool().take(op.bytes());
  const Reducer reducer(op.type, op.operation, request.function ? &request.function : nullptr,
                        options_.size);
  std::byte* sum = request.folded.data();
  request.prepared = reducer.combine(sum, inputs[0], inputs[1], op.elements);
  for (size_t i = 2; i < inputs.size(); ++i) {
    request.prepared.Update(reducer.combine(sum, sum, inputs[i], op.elements));
  }
  op.input = sum;
}

std::shared_ptr<RunningOperation> ContextImpl::start(const AllreduceOptions& options) {
  check(options);
  RunningOperationOwner& owner = *this;
  auto operation = std::make_shared<RunningOperation>(owner, endpoint_, rank_of_, request(options));
  Progress::Guard guard(endpoint_->progress());
  if (!broken_.ok()) raise(rank_of_, broken_);
  running_.push_back(operation);
  operation->begin(roll_call_.enter(operation->request().operation.tag));
  // Operations of one tag match in the order of their calls: none overtakes one that waits.
  if (!operation->request().prepared.ok()) {
    on_operation_failed(operation->request().prepared);
  } else if (to_start_.empty() && unknown_peer(*operation) < 0) {
    launch(*operation);
  } else {
    start_later(operation);
  }
  endpoint_->progress().run_deferred();
  return operation;
}

void ContextImpl::allreduce(const AllreduceOptions& options) {
  Handle handle(start(options));
  handle.wait();
}

Handle ContextImpl::allreduce_async(const AllreduceOptions& options) {
  auto operation = start(options);
  endpoint_->progress().nobody_waits();
  return Handle(std::move(operation));
}

void ContextImpl::launch(RunningOperation& operation) {
  operation.start(hosts_, group_, slices(operation.request().operation));
}

int ContextImpl::unknown_peer(const RunningOperation& operation) const {
  for (const int rank : hosts_.peers(group_, operation.request().plan)) {
    if (group_.channels[static_cast<size_t>(rank)] == nullptr) return rank;
  }
  return -1;
}

// ---- Operations whose peers are not known yet --------------------------------------------------

void ContextImpl::start_later(const std::shared_ptr<RunningOperation>& operation) {
  to_start_.push_back(operation);
  if (starting_) return;
  starting_ = true;
  if (starter_.joinable()) starter_.join();  // it has ended
  starter_ = std::thread([this] { run_starter(); });
}

// Asks the store, which may take long, for the peers of one operation after the other.
void ContextImpl::run_starter() {
  for (;;) {
    std::shared_ptr<RunningOperation> next;
    int peer = -1;
    {
      Progress::Guard guard(endpoint_->progress());
      while (!to_start_.empty()) {
        next = to_start_.front();
        peer = next->over() ? -1 : unknown_peer(*next);
        if (peer >= 0) break;
        to_start_.pop_front();
        if (!next->over()) launch(*next);
      }
      endpoint_->progress().run_deferred();
      if (to_start_.empty() || closing_) {
        starting_ = false;
        return;
      }
      next->waits_for(absl::StrCat("rank ", peer, " has not appeared in the store (key '",
                                   Record::key(peer), "')"));
    }
    const absl::Status resolved = resolve(peer, next->request().deadline);
    if (resolved.ok()) continue;
    Progress::Guard guard(endpoint_->progress());
    break_context(resolved, static_cast<uint32_t>(options_.rank));
    endpoint_->progress().run_deferred();
  }
}

std::vector<Slice> ContextImpl::slices(const Operation& operation) const {
  if (options_.plan == Plan::kStripe || options_.size == 1)
    return {{operation, {}, 0, group_.rails}};
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

// ---- Failure -----------------------------------------------------------------------------------

void ContextImpl::break_context(const absl::Status& why, uint32_t first_rank) {
  if (!broken_.ok()) return;
  broken_ = why;
  log().info("{}", prefixed(rank_of_, why.ToString()));
  for (const auto& operation : std::exchange(running_, {})) operation->fail(why);
  const std::string reason =
      first_rank == static_cast<uint32_t>(options_.rank)
          ? absl::StrCat("rank ", first_rank, ": ", std::string(why.message()))
          : std::string(why.message());
  endpoint_->broadcast_abort({job_, first_rank, reason});
}

void ContextImpl::on_operation_failed(const absl::Status& why) {
  break_context(why, static_cast<uint32_t>(options_.rank));
}

void ContextImpl::on_operation_over(RunningOperation& operation) {
  std::erase_if(running_, [&](const auto& running) { return running.get() == &operation; });
}

void ContextImpl::on_operation_overdue(RunningOperation& operation) {
  const auto& request = operation.request();
  on_roll_call({.context = job_, .tag = request.operation.tag, .ordinal = request.ordinal});
}

std::string ContextImpl::absent(const RunningOperation& operation) const {
  const auto& request = operation.request();
  return roll_call_.absent(request.operation.tag, request.ordinal);
}

void ContextImpl::on_roll_call(const wire::RollCall& call) {
  const bool is_question = call.absent == wire::RollCall::kWhoIsAbsent;
  if (!is_question && call.absent >= static_cast<uint32_t>(options_.size)) return;
  if (!roll_call_.hear(call)) return;
  endpoint_->broadcast_roll_call(call);
  if (!is_question || roll_call_.has_entered(call)) return;
  wire::RollCall answer = call;
  answer.absent = static_cast<uint32_t>(options_.rank);
  on_roll_call(answer);
}

void ContextImpl::on_abort(const wire::Abort& abort) {
  break_context(absl::AbortedError(abort.reason), abort.rank);
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
