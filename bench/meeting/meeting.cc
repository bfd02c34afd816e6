// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/meeting.h"

#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nezha/redis_store.h"

namespace nezha::bench {
namespace {

constexpr char kSeparator = '\n';
// The time that a rank waits for another one before it looks whether one has failed.
constexpr std::chrono::milliseconds kPatience{500};

using ::gloo::rendezvous::Store;

std::unique_ptr<Store> open_meeting_place(const Rendezvous& options) {
  if (!options.shared_path.empty()) {
    return std::make_unique<::gloo::rendezvous::FileStore>(options.shared_path);
  }
  if (!options.store_url.empty()) return std::make_unique<RedisStore>(options.store_url);
  const bool is_ipv6 = absl::StrContains(options.redis_host, ':');
  const std::string host = is_ipv6 ? "[" + options.redis_host + "]" : options.redis_host;
  return std::make_unique<RedisStore>(absl::StrCat("redis://", host, ":", options.redis_port));
}

std::shared_ptr<Store> open_store(const Rendezvous& options) {
  struct Prefixed {  // the one refers to the other, so both live equally long
    explicit Prefixed(const Rendezvous& o)
        : whole(open_meeting_place(o)), store(o.prefix, *whole) {}
    std::unique_ptr<Store> whole;
    ::gloo::rendezvous::PrefixStore store;
  };
  const auto both = std::make_shared<Prefixed>(options);
  return {both, &both->store};
}

// Returns the place as the command line names it, but without a URL, which may have a password.
std::string meeting_place(const Rendezvous& options) {
  if (!options.shared_path.empty()) return "--shared-path " + options.shared_path;
  if (!options.store_url.empty()) return "the server of --store";
  return "--redis-host " + options.redis_host;
}

// Keeps the store alive, because a Redis store takes its keys with it and the other ranks have yet
// to see them: this process leaves them to expire.
void keep_for_the_others(const std::shared_ptr<Store>& store) {
  static auto* const kKept = new std::vector<std::shared_ptr<Store>>;
  kKept->push_back(store);
}

bool is_there(Store& store, const std::string& key, int milliseconds = 200) {
  try {
    store.wait({key}, std::chrono::milliseconds(milliseconds));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Returns a mark of this process alone. A store accepts the same value twice, so two processes of
// one rank would not notice each other.
std::string own_mark() {
  std::random_device random;
  return absl::StrCat(absl::Hex(random()), absl::Hex(random()), std::string(1, kSeparator));
}

std::vector<std::string> values_of(const Settings& settings) {
  std::vector<std::string> values;
  for (const auto& [name, value] : settings) values.push_back(value);
  return values;
}

}  // namespace

Meeting::Meeting(const Rendezvous& options, std::string program)
    : options_(options),
      program_(std::move(program)),
      store_(open_store(options)),
      counted_(std::make_shared<CountedStore>(store_)) {}

std::vector<std::string> Meeting::of_rank_0(const std::string& topic,
                                            const std::vector<std::string>& values) {
  if (options_.rank == 0) publish(topic, absl::StrJoin(values, std::string(1, kSeparator)));
  std::vector<std::string> theirs = absl::StrSplit(read(topic, 0), kSeparator);
  if (theirs.size() == values.size()) return theirs;
  throw std::runtime_error(
      "rank 0 runs another version of the program; start the same version on all ranks");
}

void Meeting::agree(const std::string& topic, const Settings& settings) {
  const std::vector<std::string> mine = values_of(settings);
  publish(topic, absl::StrJoin(mine, std::string(1, kSeparator)));
  // The ranks' settings are read one by one: ranks beyond the first that differs may not exist,
  // because the size is a setting, too.
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::vector<std::string> theirs = absl::StrSplit(read(topic, rank), kSeparator);
    if (theirs.size() != mine.size()) {
      throw std::runtime_error(absl::StrCat(
          "rank ", rank,
          " runs another version of the program; start the same version on all ranks"));
    }
    for (size_t i = 0; i < mine.size(); ++i) {
      if (mine[i] == theirs[i]) continue;
      keep_for_the_others(store_);
      throw std::runtime_error(absl::StrCat("the ranks' command lines differ: ", settings[i].first,
                                            " is ", mine[i], " here and ", theirs[i], " at rank ",
                                            rank));
    }
  }
}

std::vector<std::string> Meeting::union_of(const std::string& topic,
                                           const std::vector<std::string>& names) {
  publish(topic, absl::StrJoin(names, std::string(1, kSeparator)));
  std::set<std::string> all;
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::vector<std::string> theirs = absl::StrSplit(read(topic, rank), kSeparator);
    all.insert(theirs.begin(), theirs.end());
  }
  return {all.begin(), all.end()};
}

std::vector<std::string> Meeting::at_rank_0(const std::string& topic, const std::string& text) {
  const std::string end = topic + "-read";
  std::vector<std::string> all;
  if (options_.rank != 0) {
    publish(topic, text);
    read(end, 0);
    return all;
  }
  all.push_back(text);
  for (int rank = 1; rank < options_.size; ++rank) all.push_back(read(topic, rank));
  publish(end, "");
  keep_for_the_others(store_);
  return all;
}

std::string Meeting::key_of(const std::string& topic, int rank) const {
  return absl::StrCat(program_, "-", topic, "-", rank);
}

std::string Meeting::failure_key() const { return program_ + "-failure"; }

void Meeting::publish(const std::string& topic, const std::string& text) {
  const std::string place = meeting_place(options_);
  const std::string key = key_of(topic, options_.rank);
  const std::string marked = own_mark() + text;
  try {
    store_->set(key, {marked.begin(), marked.end()});
  } catch (const std::exception& error) {
    if (is_there(*store_, key)) {
      throw std::runtime_error(absl::StrCat(
          "an earlier run, or another process of this one with --rank ", options_.rank,
          ", used --prefix ", options_.prefix, " in ", place, ": take a new --prefix"));
    }
    throw std::runtime_error(absl::StrCat("cannot write to ", place, ": ", error.what()));
  }
}

void Meeting::leave() { keep_for_the_others(store_); }

void Meeting::tell_failure(const std::string& why) {
  try {
    store_->set(failure_key(), {why.begin(), why.end()});
    keep_for_the_others(store_);
  } catch (const std::exception&) {
    // Another rank was first, or the store cannot be reached; the others have a deadline.
  }
}

// Returns the store's error if the key is not there at the end, or nothing once the key is there.
std::optional<std::string> Meeting::await(const std::string& key, int rank, Clock::time_point end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const auto patience = std::clamp(left, std::chrono::milliseconds(1), kPatience);
    const auto begin = Clock::now();
    try {
      store_->wait({key}, patience);
      return std::nullopt;
    } catch (const std::exception& error) {
      if (is_there(*store_, failure_key(), 1)) {
        const auto why = store_->get(failure_key());
        throw std::runtime_error("another rank has failed: " + std::string(why.begin(), why.end()));
      }
      const auto time = Clock::now();
      // The Redis store's error may be that the server has gone; the file store's adds nothing.
      if (time >= end) return options_.shared_path.empty() ? error.what() : "";
      // Then the store fails, and not a rank that is late.
      if (time - begin < patience / 2) {
        throw std::runtime_error(
            absl::StrCat("rank ", rank, has_not_come("has"), ": ", error.what()));
      }
    }
  }
}

std::string Meeting::has_not_come(absl::string_view verb) const {
  return absl::StrCat(" ", verb, " not come to ", meeting_place(options_), ", --prefix ",
                      options_.prefix);
}

void Meeting::throw_late(const std::vector<int>& ranks, std::chrono::milliseconds patience,
                         const std::string& why) const {
  const bool one = ranks.size() == 1;
  throw std::runtime_error(absl::StrCat(one ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
                                        has_not_come(one ? "has" : "have"), ", within ",
                                        patience.count(), " ms", why.empty() ? "" : ": ", why));
}

std::string Meeting::value_of(const std::string& key) {
  const auto text = store_->get(key);
  const auto mark_end = std::find(text.begin(), text.end(), kSeparator);
  return {mark_end == text.end() ? mark_end : mark_end + 1, text.end()};
}

std::string Meeting::read(const std::string& topic, int rank) {
  return read(topic, rank, options_.timeout);
}

std::string Meeting::read(const std::string& topic, int rank, std::chrono::milliseconds patience) {
  const std::string key = key_of(topic, rank);
  if (const auto late = await(key, rank, Clock::now() + patience)) {
    throw_late({rank}, patience, *late);
  }
  return value_of(key);
}

std::vector<std::string> Meeting::gather(const std::string& topic, const std::string& text) {
  return gather(topic, text, options_.timeout);
}

std::vector<std::string> Meeting::gather(const std::string& topic, const std::string& text,
                                         std::chrono::milliseconds patience) {
  publish(topic, text);
  const auto end = Clock::now() + patience;
  std::vector<std::string> all;
  std::vector<int> missing;
  std::string why;
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::string key = key_of(topic, rank);
    if (const auto late = await(key, rank, end)) {
      missing.push_back(rank);
      why = *late;
    } else {
      all.push_back(value_of(key));
    }
  }
  if (!missing.empty()) throw_late(missing, patience, why);
  return all;
}

}  // namespace nezha::bench
