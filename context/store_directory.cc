// SPDX-License-Identifier: Apache-2.0
#include "context/store_directory.h"

#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/out_of_memory.h"
#include "common/shortage.h"
#include "context/refusal.h"

namespace nezha {
namespace {

// How long one question to the store may take. That is enough for a distant or busy network, too.
constexpr Nanos kPatience = 200 * kMillisecond;
// A rank that has waited longer than that pauses between questions, in proportion to the time that
// it has waited: if thousands of ranks that wait for a late one asked all the time, the store would
// have no time for the late rank. Near the deadline the pauses become shorter, so that there is
// time for what comes after.
constexpr int kPartOfWait = 4;  // the pause is this fraction of the time waited
constexpr int kPartOfRest = 8;
constexpr Nanos kLongestBreak = kSecond;
constexpr Nanos kNap = 20 * kMillisecond;  // between two checks whether to give up

constexpr absl::string_view kAdvice =
    "Has an earlier run or context used this directory or prefix? Each context takes a new one. Or "
    "are two processes given one rank? Each takes its own";

std::string process_of(const Record& record) {
  return absl::StrCat("pid ", record.pid, " on host ", record.host);
}

// Returns the error text if two contexts, most likely of two processes, have the same rank.
std::string twice(int rank, const Record& other, const Record& own) {
  if (other.process == own.process) {
    return absl::StrCat("this process, ", process_of(own), ", has published rank ", rank,
                        " here already, for another context. ", kAdvice);
  }
  return absl::StrCat("rank ", rank, " is there already, as ", process_of(other), ", and ",
                      process_of(own), " is given the rank, too. ", kAdvice);
}

bool is_there(::gloo::rendezvous::Store& store, const std::string& key) {
  try {
    store.wait({key}, std::chrono::milliseconds(kPatience / kMillisecond));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

absl::Status failure(int rank, const std::exception& error) {
  return absl::UnavailableError(absl::StrCat("asking the store for rank ", rank, " (key '",
                                             Record::key(rank), "'): ", error.what(),
                                             advice_on_descriptors()));
}

// Pauses before the next question to the store. Returns an error of `given_up`.
absl::Status pause(Nanos begin, Nanos deadline, const std::function<absl::Status()>& given_up) {
  const Nanos time = now();
  const Nanos end = std::min(time + pause_after(time - begin, deadline - time), deadline);
  for (;;) {
    if (absl::Status why = given_up(); !why.ok()) return why;
    const Nanos left = end - now();
    if (left <= 0) return absl::OkStatus();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, kNap)));
  }
}

}  // namespace

Nanos pause_after(Nanos waited, Nanos left) {
  if (waited < kPatience) return 0;
  return std::min(waited / kPartOfWait, std::clamp(left / kPartOfRest, kNap, kLongestBreak));
}

absl::Status StoreDirectory::publish(int rank, const Record& record) {
  const std::string key = Record::key(rank);
  const std::string text = record.encode();
  const std::lock_guard lock(mutex_);
  try {
    store_->set(key, std::vector<char>(text.begin(), text.end()));
    return absl::OkStatus();
  } catch (const std::exception& error) {
    // Looks for the key instead of interpreting the error text, since each store words errors
    // differently.
    std::string why =
        "the store cannot be written. Its directory or its server must exist before the ranks "
        "start. The store says: ";
    if (is_there(*store_, key)) {
      const auto there = fetch(rank);
      // Two processes that set one key at the same time write one file of Gloo's FileStore, and the
      // first to finish moves what the second has written into place. The first process finds that
      // out when it confirms its record.
      if (there.ok() && there->publication == record.publication) return absl::OkStatus();
      why = there.ok() ? twice(rank, *there, record)
                       : absl::StrCat("the key is there already. ", kAdvice);
      absl::StrAppend(&why, ". The store says: ");
    }
    return absl::UnavailableError(absl::StrCat("publishing rank ", rank, " in the store: ", why,
                                               error.what(), advice_on_descriptors()));
  }
}

absl::Status StoreDirectory::confirm(int rank, const Record& record) {
  const std::lock_guard lock(mutex_);
  const auto there = fetch(rank);
  if (!there.ok() || there->publication == record.publication) return absl::OkStatus();
  return absl::UnavailableError(twice(rank, *there, record));
}

void StoreDirectory::refuse(int rank, absl::string_view why) {
  const std::lock_guard lock(mutex_);
  leave_refusal(store_, rank, why);
}

absl::StatusOr<Record> StoreDirectory::read(int rank, Nanos deadline,
                                            const std::function<absl::Status()>& given_up) {
  const std::string key = Record::key(rank);
  const auto absent = [&](absl::string_view why) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank, " has not appeared in the store (key '", key, "'): ", why));
  };
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (; !lock.owns_lock(); (void)lock.try_lock()) {
    if (absl::Status why = given_up(); !why.ok()) return why;
    if (now() >= deadline) return absent("other threads were waiting for other ranks");
    std::this_thread::sleep_for(std::chrono::nanoseconds(kNap));
  }
  const Nanos begin = now();
  for (bool is_there = false; !is_there;) {
    // Waits in short steps, since another rank may meanwhile tell that the context is broken.
    if (absl::Status why = pause(begin, deadline, given_up); !why.ok()) return why;
    const Nanos asked = now();
    const Nanos patience = std::clamp<Nanos>(deadline - asked, kMillisecond, kPatience);
    try {
      store_->wait({key}, std::chrono::milliseconds(patience / kMillisecond));
      is_there = true;
    } catch (const std::bad_alloc&) {
      return caught_status();
    } catch (const std::exception& error) {
      if (const auto refusal = find_refusal(*store_)) return absl::AbortedError(*refusal);
      if (now() >= deadline) return absent(error.what());
      // The error came too early for a timeout, so it is the store that fails.
      if (now() - asked < patience / 2) return failure(rank, error);
    }
  }
  return fetch(rank);
}

absl::StatusOr<Record> StoreDirectory::fetch(int rank) {
  std::vector<char> text;
  try {
    text = store_->get(Record::key(rank));
  } catch (const std::bad_alloc&) {
    return caught_status();
  } catch (const std::exception& error) {
    return failure(rank, error);
  }
  auto record = Record::decode(absl::string_view(text.data(), text.size()));
  if (record.ok()) return record;
  return absl::InvalidArgumentError(absl::StrCat(
      "the record of rank ", rank, " in the store is bad: ", record.status().message()));
}

}  // namespace nezha
