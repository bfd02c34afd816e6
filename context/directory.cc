#include "context/directory.h"

#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "context/refusal.h"

namespace nezha {
namespace {

// How long one question to the store may take.
constexpr Nanos kPatience = 200 * kMillisecond;
// Who has waited for longer than that asks for a moment only, after pauses that grow with the time
// it has waited: a store that thousands of ranks ask all the time, since one of them is late, has
// no time for that one.
constexpr Nanos kMoment = 4 * kMillisecond;
constexpr int kPartOfWait = 4;  // one of so many
constexpr Nanos kLongestPause = kSecond;
constexpr Nanos kNap = 20 * kMillisecond;  // between two looks at whether to give up

constexpr absl::string_view kUsed =
    "it is there already; has an earlier run, an earlier context, or another process of this rank "
    "used this directory or prefix? Each context takes a new one. The store says: ";

bool is_there(::gloo::rendezvous::Store& store, const std::string& key) {
  try {
    store.wait({key}, std::chrono::milliseconds(kPatience / kMillisecond));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Before the store is asked once more. An error: `given_up`.
absl::Status pause(Nanos begin, Nanos deadline, const std::function<absl::Status()>& given_up) {
  const Nanos waited = now() - begin;
  const Nanos length = waited < kPatience ? 0 : std::min(waited / kPartOfWait, kLongestPause);
  const Nanos end = std::min(begin + waited + length, deadline);
  for (;;) {
    if (absl::Status why = given_up(); !why.ok()) return why;
    const Nanos left = end - now();
    if (left <= 0) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kNap)));
  }
}

}  // namespace

absl::Status Directory::publish(int rank, const Record& record) {
  const std::string key = Record::key(rank);
  const std::string text = record.encode();
  const std::lock_guard lock(mutex_);
  try {
    store_->set(key, std::vector<char>(text.begin(), text.end()));
    return absl::OkStatus();
  } catch (const std::exception& error) {
    // Not by what the store says: each has words of its own, and Gloo's FileStore fails to rename a
    // file where two processes set one key at the same time.
    return absl::UnavailableError(absl::StrCat(
        "publishing this rank in the store: ", is_there(*store_, key) ? kUsed : "", error.what()));
  }
}

void Directory::refuse(int rank, absl::string_view why) {
  const std::lock_guard lock(mutex_);
  leave_refusal(store_, rank, why);
}

absl::StatusOr<Record> Directory::read(int rank, Nanos deadline,
                                       const std::function<absl::Status()>& given_up) {
  const std::string key = Record::key(rank);
  const auto absent = [&](absl::string_view why) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank, " has not appeared in the store (key '", key, "'): ", why));
  };
  const Nanos begin = now();
  const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
  const std::unique_lock lock(mutex_, until);
  if (!lock.owns_lock()) return absent("other threads were waiting for other ranks");
  std::vector<char> text;
  for (bool found = false; !found;) {
    // Not all of it at once: another rank may tell meanwhile that the context is broken.
    if (absl::Status why = pause(begin, deadline, given_up); !why.ok()) return why;
    const Nanos asked = now();
    const Nanos most = asked - begin < kPatience ? kPatience : kMoment;
    const Nanos patience = std::clamp<Nanos>(deadline - asked, kMillisecond, most);
    try {
      store_->wait({key}, std::chrono::milliseconds(patience / kMillisecond));
      text = store_->get(key);
      found = true;
    } catch (const std::exception& error) {
      if (const auto refusal = find_refusal(*store_)) return absl::AbortedError(*refusal);
      const bool failed_early = now() - asked < patience / 2;
      if (failed_early || now() >= deadline) return absent(error.what());
    }
  }
  auto record = Record::decode(absl::string_view(text.data(), text.size()));
  if (record.ok()) return record;
  return absl::InvalidArgumentError(absl::StrCat(
      "the record of rank ", rank, " in the store is bad: ", record.status().message()));
}

}  // namespace nezha
