// SPDX-License-Identifier: Apache-2.0
// The record each rank publishes in the rendezvous store: who it is and where its devices are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/unique_id.h"
#include "rails/nic_selector.h"

namespace nezha {

// In the store a record is text: the line `nezha 1`, then lines `key value`, then the line `end`.
// What follows does not count: it is the rest of a longer record that was in the same file.
struct Record {
  static constexpr absl::string_view kAlone = "alone";
  static constexpr absl::string_view kBesideOthers = "beside others";

  UniqueId job;
  UniqueId process;
  UniqueId publication;  // chosen at random: tells this record from others of the process
  std::string host;
  std::string cores;  // Cores::pool; empty: not known
  int pid = 0;
  int size = 0;                                   // the context's
  std::string flare_rail;                         // kAlone, kBesideOthers; empty: there is none
  std::string settings;                           // what must be the same on all ranks
  std::map<std::string, std::string> devices;     // address by rail name
  std::map<std::string, std::string> interfaces;  // keyed by rail name, if the selector chose it

  std::string encode() const;
  // The store is not trusted: sizes are bounded, and unknown keys are errors.
  static absl::StatusOr<Record> decode(absl::string_view text);

  // Returns each rail with its interface, which is empty if the NIC selector did not choose it.
  ChosenInterfaces rails() const;

  static std::string key(int rank);

  // Returns "rank 1 of 4 (node1, pid 77)", as errors name the process; "rank 1 of 4" if it has no
  // host.
  std::string describe(int rank) const;
};

}  // namespace nezha
