// What the ranks of a benchmark tell each other before they measure, through the rendezvous store.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/counted_store.h"
#include "bench/options.h"

namespace nezha::bench {

// Names and values that must be the same on all ranks.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Its functions are collective: they return when every rank that they need has called them with the
// same topic, or throw once the timeout of the options is over, naming the rank that is missing, or
// sooner, if a rank has told that it fails. A topic is for one use.
class Meeting {
 public:
  // Opens the store that the options name, under their prefix.
  explicit Meeting(const Options& options);

  // Where the library under test joins the ranks.
  std::shared_ptr<::gloo::rendezvous::Store> store() const { return counted_; }
  // What the library has asked of it so far.
  uint64_t requests() const { return counted_->requests(); }

  // What rank 0 gives, on all ranks. Nobody waits for the others.
  std::vector<std::string> of_rank_0(const std::string& topic,
                                     const std::vector<std::string>& values);

  // Throws on every rank if the ranks' settings differ. They all have the same names.
  void agree(const std::string& topic, const Settings& settings);

  // The names that any rank has, each once, sorted.
  std::vector<std::string> union_of(const std::string& topic,
                                    const std::vector<std::string>& names);

  // Every rank's text at rank 0, by rank; nothing on the others. They return when rank 0 has it.
  std::vector<std::string> at_rank_0(const std::string& topic, const std::string& text);

  // Tells the ranks that wait for this one why it fails. Not collective; throws nothing.
  void tell_failure(const std::string& why);

 private:
  void publish(const std::string& topic, const std::string& text);
  std::string read(const std::string& topic, int rank);
  void await(const std::string& key, int rank);

  const Options& options_;
  std::shared_ptr<::gloo::rendezvous::Store> store_;
  std::shared_ptr<CountedStore> counted_;
};

}  // namespace nezha::bench
