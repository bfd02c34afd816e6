// SPDX-License-Identifier: Apache-2.0
// Lets the ranks of a program exchange texts through the rendezvous store.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "bench/meeting/counted_store.h"
#include "bench/meeting/rendezvous.h"

namespace nezha::bench {

// Names and values that must be the same on all ranks.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Functions are collective unless they say otherwise: they return when every rank that they need
// has called them with the same topic. They throw once the timeout of the options is over, naming
// the rank that is missing, or sooner if a rank has reported that it fails. A topic is for one use.
class Meeting {
 public:
  // Opens the store that the options name, under their prefix. Each `program` has its own keys, so
  // what one has left there, such as why it failed, does not affect another one.
  Meeting(const Rendezvous& options, std::string program);

  // Returns the store by which the library under test joins the ranks.
  std::shared_ptr<::gloo::rendezvous::Store> store() const { return counted_; }
  // Returns how many requests the library has made to the store so far.
  uint64_t requests() const { return counted_->requests(); }

  // Returns rank 0's values on all ranks. Nobody waits for the others.
  std::vector<std::string> of_rank_0(const std::string& topic,
                                     const std::vector<std::string>& values);

  // Throws on every rank if the ranks' settings differ. They all have the same names.
  void agree(const std::string& topic, const Settings& settings);

  // Returns the names that any rank has, each once, sorted.
  std::vector<std::string> union_of(const std::string& topic,
                                    const std::vector<std::string>& names);

  // Returns every rank's text at rank 0, by rank, and nothing on the others. The others return when
  // rank 0 has it.
  std::vector<std::string> at_rank_0(const std::string& topic, const std::string& text);
  // Returns the texts of all ranks. They may take `patience`, or the timeout of the options, to
  // come. The error names every rank that is missing.
  std::vector<std::string> gather(const std::string& topic, const std::string& text);
  std::vector<std::string> gather(const std::string& topic, const std::string& text,
                                  std::chrono::milliseconds patience);

  // Gives this rank's text to the ranks that read it. The call is not collective. Throws if the
  // topic is used.
  void publish(const std::string& topic, const std::string& text);
  // Waits for the text of a rank, for `patience` or the timeout of the options.
  std::string read(const std::string& topic, int rank);
  std::string read(const std::string& topic, int rank, std::chrono::milliseconds patience);

  // Leaves this rank's keys to expire in the store, for ranks that have yet to read them. The call
  // is not collective.
  void leave();

  // Tells the ranks that wait for this one why it fails. The call is not collective, and throws
  // nothing.
  void tell_failure(const std::string& why);

 private:
  using Clock = std::chrono::steady_clock;

  std::string key_of(const std::string& topic, int rank) const;
  std::string failure_key() const;
  std::optional<std::string> await(const std::string& key, int rank, Clock::time_point end);
  std::string has_not_come(absl::string_view verb) const;
  [[noreturn]] void throw_late(const std::vector<int>& ranks, std::chrono::milliseconds patience,
                               const std::string& why) const;
  std::string value_of(const std::string& key);

  const Rendezvous& options_;
  const std::string program_;
  std::shared_ptr<::gloo::rendezvous::Store> store_;
  std::shared_ptr<CountedStore> counted_;
};

}  // namespace nezha::bench
