// SPDX-License-Identifier: Apache-2.0
#include "interop/gloo/member.h"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/environment.h"
#include "common/out_of_memory.h"
#include "context/context_impl.h"
#include "context/departure.h"
#include "context/rails.h"
#include "context/raise.h"
#include "context/settings.h"
#include "nezha/context.h"
#include "nezha/errors.h"

namespace nezha::interop {
namespace {

// Gloo's slots are below this, which is 2^64 - 2^32. The tags of bound buffers, whose slots are an
// int, are above it.
constexpr uint64_t kEndOfSlots = ~uint64_t{0} - (uint64_t{1} << 32) + 1;
constexpr uint64_t kStreamTag = kEndOfSlots;  // the tag of the records that ranks send each other
constexpr uint64_t bound_tag(int slot) { return kEndOfSlots + 1 + static_cast<uint32_t>(slot); }

// The id on the wire of nezha's own context of the ranks; see kGlooJob.
constexpr UniqueId kCollectivesJob{0x6e657a6861206e65, 0x7a6861206e657a68};

[[noreturn]] void refuse(absl::string_view rank_of, const absl::Status& why) {
  if (absl::IsResourceExhausted(why)) raise(rank_of, why);
  throw InvalidArgument(prefixed(rank_of, absl::string_view(why.message())));
}

void check_slot(absl::string_view rank_of, uint64_t slot) {
  if (slot < kEndOfSlots) return;
  throw InvalidArgument(
      prefixed(rank_of, absl::StrCat("slot ", slot, " is not below ", kEndOfSlots)));
}

}  // namespace

// Holds the lock. Its destructor runs deferred functions, and destroys transfers that are over.
class Member::Entry {
 public:
  explicit Entry(Member& member) : member_(member), guard_(member.progress()) {}
  ~Entry() {
    member_.progress().run_deferred();
    member_.buried_.clear();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  Progress::Guard& guard() { return guard_; }

 private:
  Member& member_;
  Progress::Guard guard_;
};

// ---- The beginning and the end -----------------------------------------------------------------

Member::Member(int rank, int size, const std::vector<std::string>& rails)
    : rank_(rank),
      size_(size),
      rank_of_(absl::StrCat("rank ", rank, " of ", size)),
      log_(log_of_rank(rank, size)),
      streams_(static_cast<size_t>(size)) {
  auto endpoint = Endpoint::create();
  if (!endpoint.ok()) raise(rank_of_, endpoint.status());
  endpoint_ = *std::move(endpoint);
  say_goodbye_at_exit(endpoint_);
  for (int each = 0; each < size; ++each) {
    peers_.push_back(each == rank ? nullptr : std::make_unique<Peer>(each));
  }
  join(rails);
}

// This is called before this rank is told who the others are, since they may connect before that.
void Member::join(const std::vector<std::string>& rails) {
  ContextOptions options;
  options.rank = rank_;
  options.size = size_;
  options.rails = rails;
  if (const absl::Status status = check_environment(); !status.ok()) refuse(rank_of_, status);
  const absl::Status complete = complete_own_options(options);
  if (!complete.ok()) refuse(rank_of_, complete);
  puts_latency_first_ = options.polling == Polling::kLatencyFirst;
  // Leaves out switches: they know only certain operations, and Gloo's may be any function.
  std::erase_if(options.rails, is_switch_rail);
  if (options.rails.empty()) {
    refuse(rank_of_, absl::InvalidArgumentError("a Gloo context needs a rail that is no switch's"));
  }
  acquaintances_ = std::make_shared<Acquaintances>();
  auto impl = std::make_unique<ContextImpl>(
      Setup(endpoint_, acquaintances_, std::move(options), kCollectivesJob));
  impl->join();
  record_ = *acquaintances_->own();
  record_.settings += " collectives=" + environment("NEZHA_GLOO_COLLECTIVES");
  impl->set_on_broken([this](const absl::Status& why) { tell_and_fail_all(why); });
  context_ = ContextImpl::in_context(std::move(impl));
  auto address = Address::of(record_);
  if (!address.ok()) refuse(rank_of_, address.status());
  address_ = std::make_unique<Address>(*std::move(address));
  Progress::Guard guard(progress());
  const absl::Status joined = endpoint_->join(kGlooJob, this);
  if (!joined.ok()) raise(rank_of_, joined);
}

Member::~Member() {
  if (mark_.is_inherited()) {  // the locks may be held by threads that this process does not have
    static_cast<void>(new (std::nothrow) std::shared_ptr<Endpoint>(std::move(endpoint_)));
    static_cast<void>(new (std::nothrow) std::shared_ptr<Context>(std::move(context_)));
    for (auto& stream : streams_) static_cast<void>(stream.release());
    return;
  }
  leave_collectives();
  {
    Progress::Guard guard(progress());
    streams_.clear();
    endpoint_->leave(kGlooJob, this);
    progress().run_deferred();  // deferred functions may refer to this member
  }
  end_in_background(std::move(endpoint_));
}

std::shared_ptr<Context> Member::context() {
  check_process();
  Progress::Guard guard(progress());
  return context_;
}

// The program may hold the context, too, and go on with it.
void Member::leave_collectives() noexcept {
  if (mark_.is_inherited()) return;
  std::shared_ptr<Context> left;
  Progress::Guard guard(progress());
  left.swap(context_);
  if (left != nullptr) left->impl().set_on_broken(nullptr);
}

void Member::check_process() const {
  if (mark_.is_inherited()) throw InvalidArgument(prefixed(rank_of_, kInherited));
}

// ---- The other ranks ---------------------------------------------------------------------------

Peer& Member::peer(int rank) {
  Peer* found = rank >= 0 && rank < size_ ? peers_[static_cast<size_t>(rank)].get() : nullptr;
  if (found != nullptr) return *found;
  throw InvalidArgument(
      prefixed(rank_of_, absl::StrCat(rank, " is not the rank of another process of the context")));
}

Peer& Member::connected_peer(int rank) {
  Peer& found = peer(rank);
  const absl::Status status = found.can_send();
  if (!status.ok()) raise(rank_of_, status);
  return found;
}

void Member::connect(int rank, const std::vector<char>& bytes) {
  check_process();
  const auto address = Address::parse(bytes);
  if (!address.ok()) {
    throw InvalidArgument(
        prefixed(rank_of_, absl::StrCat("rank ", rank, ": ", address.status().message())));
  }
  if (!address->agrees_with(*address_)) {
    throw InvalidArgument(prefixed(
        rank_of_,
        absl::StrCat("rank ", rank, " runs by other settings than this rank, whose settings are ",
                     record_.settings, "; give the same NEZHA_ variables to both")));
  }
  const Entry entry(*this);
  Channel& channel = endpoint_->channel(address->process());
  peer(rank).set_channel(channel);
  const absl::Status learned = learn(rank, address->record(), address->is_complete());
  if (!learned.ok()) raise(rank_of_, learned);
  auto& stream = streams_[static_cast<size_t>(rank)];
  stream = std::make_unique<MessageStream>(
      channel, kGlooJob.low, kStreamTag,
      MessageStream::Callbacks{
          .on_message = [this, rank](const std::string& message) { on_message(rank, message); },
          .on_failed = [](const absl::Status&) {}});  // the transfers fail, too
  stream->start();
  // Sending makes a connection, so that each rank hears at once if another ends, as in Gloo.
  stream->send(record_.encode());
}

absl::Status Member::learn(int rank, const Record& record, bool is_complete) {
  const auto pairs = pair_rails(record_.rails(), record.rails());
  if (pairs.empty() && is_complete) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no rail in common with rank ", rank,
        ", which has: ", absl::StrJoin(record.devices, ", ", absl::PairFormatter(" at ")),
        "; rails are matched by name (?rail=NAME); nezha-bench --list-rails says what auto finds"));
  }
  if (is_complete) tell_of_missing_rails(rank, record, pairs.size());
  Record known = record;
  known.size = size_;
  acquaintances_->meet(rank, known);
  std::map<std::string, std::string> addresses;
  for (const auto& [here, there] : pairs) addresses[here] = record.devices.at(there);
  peer(rank).channel()->set_peer(known.describe(rank), kGlooJob, addresses, pairs);
  return absl::OkStatus();
}

// Missing rails cost speed, and nothing else would tell the user.
void Member::tell_of_missing_rails(int rank, const Record& record, size_t in_common) {
  const size_t most = std::max(record_.devices.size(), record.devices.size());
  if (in_common == most || std::exchange(has_told_of_rails_, true)) return;
  const auto names = [](const Record& of) {
    return absl::StrJoin(of.devices, ", ",
                         [](std::string* out, const auto& device) { *out += device.first; });
  };
  log_->warn(
      "this rank has the rails {}, and rank {} has {}: they use those that both have; "
      "nezha-check tells more",
      names(record_), rank, names(record));
}

// Takes the peer's complete record: it may have more rails than its address has room for, and says
// on which host the peer runs.
void Member::on_message(int rank, const std::string& message) {
  const auto record = Record::decode(message);
  absl::Status status = record.status();
  if (status.ok() && record->process != peer(rank).channel()->peer()) {
    status = absl::InvalidArgumentError("it describes another process");
  }
  if (status.ok()) status = learn(rank, *record, /*is_complete=*/true);
  if (status.ok()) return;
  log_->warn("the description that rank {} sent of its rails cannot be used: {}", rank,
             std::string(status.message()));
}

void Member::close(int rank) noexcept {
  if (mark_.is_inherited()) return;
  const Entry entry(*this);
  try {
    Peer& closed = peer(rank);
    closed.fail(absl::UnavailableError(
        absl::StrCat("the connection to rank ", rank, " was closed by this rank")));
    if (closed.channel() == nullptr) return;
    streams_[static_cast<size_t>(rank)].reset();
    closed.channel()->leave(kGlooJob);
  } catch (...) {
    endpoint_->stop(caught_status());
  }
}

bool Member::is_connected(int rank) {
  if (mark_.is_inherited()) return false;
  const Entry entry(*this);
  return streams_[static_cast<size_t>(rank)] != nullptr && peer(rank).can_send().ok();
}

// ---- Transfers ---------------------------------------------------------------------------------

// Begins a transfer completely or, if there is no memory for that, not at all.
template <typename T, typename Start>
void Member::begin(std::unique_ptr<T> transfer, Start start) {
  T& begun = *transfer;
  Completions& completions = begun.owner();
  completions.add(std::move(transfer));
  try {
    start(begun);
  } catch (...) {
    const absl::Status why = caught_status();
    begun.withdraw();
    completions.fail(begun, why);
    raise(rank_of_, why);
  }
}

void Member::send(Completions& completions, int rank, uint64_t tag, const std::byte* data,
                  size_t bytes) {
  check_process();
  check_slot(rank_of_, tag);
  const Entry entry(*this);
  begin(std::make_unique<Sending>(completions, connected_peer(rank), tag),
        [&](Sending& sending) { sending.start(data, bytes); });
}

// Gloo's algorithms overwrite the memory of a bound buffer after a send, and destroy the buffer,
// without waiting. With Gloo's own device that works because it has copied the message into a
// socket by then, if the message is not long.
void Member::send_bound(Completions& completions, int rank, int slot, const std::byte* data,
                        size_t bytes, uint64_t place) {
  check_process();
  const Entry entry(*this);
  begin(std::make_unique<Sending>(completions, connected_peer(rank), bound_tag(slot)),
        [&](Sending& sending) { sending.start_bound(data, bytes, place); });
}

void Member::receive(Completions& completions, const std::vector<int>& ranks, uint64_t tag,
                     std::byte* memory, size_t room) {
  check_process();
  check_slot(rank_of_, tag);
  const Entry entry(*this);
  std::vector<Peer*> peers;
  absl::Status lost = absl::InvalidArgumentError("the receive names no rank other than this one");
  for (const int rank : std::set<int>(ranks.begin(), ranks.end())) {
    if (rank == rank_) continue;  // a receive from any rank lists this rank, which sends nothing
    Peer& source = peer(rank);
    absl::Status status = source.can_receive();
    if (status.ok()) {
      peers.push_back(&source);
    } else {
      lost = std::move(status);
    }
  }
  if (peers.empty()) raise(rank_of_, lost);
  begin(std::make_unique<Receiving>(completions, peers, tag),
        [&](Receiving& receiving) { receiving.start(memory, room); });
}

void Member::bind(Completions& completions, int rank, int slot, std::byte* memory, size_t room) {
  check_process();
  const Entry entry(*this);
  peer(rank);  // throws if there is none
  const Bound bound{.completions = &completions, .memory = memory, .room = room};
  if (!bound_.try_emplace({rank, slot}, bound).second) {
    throw InvalidArgument(prefixed(rank_of_, absl::StrCat("slot ", slot, " of the pair with rank ",
                                                          rank, " has a buffer already")));
  }
  ask_for_next(rank, slot);
}

// Asks for one message at a time, since only the beginning of a message says where it goes.
void Member::ask_for_next(int rank, int slot) {
  const auto entry = bound_.find({rank, slot});
  if (entry == bound_.end() || std::exchange(entry->second.is_waiting, true)) return;
  const Bound bound = entry->second;
  Peer& source = peer(rank);
  const absl::Status status = source.can_receive();
  if (!status.ok()) return bound.completions->fail(status);
  const auto on_match = [this, rank, slot] {
    bound_.at({rank, slot}).is_waiting = false;
    // This is deferred, because the inbox is calling, and is about to hand out this message.
    progress().defer([this, rank, slot] { ask_for_next(rank, slot); });
  };
  begin(std::make_unique<Receiving>(*bound.completions, std::vector<Peer*>{&source},
                                    bound_tag(slot), on_match),
        [&](Receiving& receiving) { receiving.start(bound.memory, bound.room); });
}

// ---- Waiting -----------------------------------------------------------------------------------

std::unique_ptr<Completions> Member::completions(absl::string_view what) {
  return std::make_unique<Completions>(*this, what);
}

void Member::give_back(std::unique_ptr<Completions> completions) noexcept {
  if (mark_.is_inherited()) {
    static_cast<void>(completions.release());
    return;
  }
  const Entry entry(*this);
  absl::erase_if(bound_,
                 [&](const auto& each) { return each.second.completions == completions.get(); });
  completions.reset();
}

std::optional<int> Member::wait(Completions& completions, std::chrono::milliseconds timeout) {
  check_process();
  Entry entry(*this);
  const auto ended = completions.wait(entry.guard(), now() + to_nanos(timeout));
  if (ended.ok()) return *ended;
  // This is checked first, because the failure itself may be a DeadlineExceeded of another wait.
  if (completions.has_failed()) raise(rank_of_, ended.status());
  const absl::Status late = absl::DeadlineExceededError(
      absl::StrCat("Timed out waiting ", timeout.count(), "ms for ", completions.what(),
                   " operation to complete: ", ended.status().message()));
  tell_and_fail_all(late);
  raise(rank_of_, late);
}

void Member::abort_wait(Completions& completions) {
  check_process();
  const Entry entry(*this);
  completions.abort_wait();
}

// ---- Failure -----------------------------------------------------------------------------------

// Takes every step even if there is no memory for one: a rank that hears nothing would wait.
void Member::fail_all(const absl::Status& why, const wire::Abort& abort) {
  if (std::exchange(has_failed_, true)) return;
  const auto must = [this](absl::FunctionRef<void()> step) {
    try {
      step();
    } catch (...) {
      endpoint_->stop(caught_status());  // the links go down, so the other ranks notice
    }
  };
  for (const auto& each : peers_) {
    if (each != nullptr) must([&] { each->fail(why); });
  }
  must([&] { endpoint_->broadcast_abort(abort); });
  if (context_ != nullptr) must([&] { context_->impl().fail(why); });
}

void Member::tell_and_fail_all(const absl::Status& why) {
  fail_all(why, {.context = kGlooJob,
                 .rank = static_cast<uint32_t>(rank_),
                 .lost = {},
                 .reason = std::string(why.message())});
}

// Passes the abort on: this rank may have links to ranks to which the one that gave up has none.
void Member::on_abort(const wire::Abort& abort) {
  fail_all(absl::UnavailableError(
               absl::StrCat("rank ", abort.rank, " has given the context up: ", abort.reason)),
           abort);
}

void Member::on_failed(const absl::Status& why) { tell_and_fail_all(why); }

}  // namespace nezha::interop
