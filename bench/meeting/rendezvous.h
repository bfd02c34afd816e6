// SPDX-License-Identifier: Apache-2.0
// Settles which rank of how many a process is, and where the ranks meet.
#pragma once

#include <chrono>
#include <string>

#include "bench/meeting/command_line.h"

namespace nezha::bench {

struct Rendezvous {
  int rank = -1;  // not given
  int size = 0;   // not given
  // The place where the ranks meet: one of the three.
  std::string shared_path;
  std::string store_url;
  std::string redis_host;
  int redis_port = 6379;
  std::string prefix;
  std::chrono::milliseconds timeout{0};  // 0 until it is known
};

// `timeout_help` says what --timeout is the deadline of. The table refers to `o`.
void add_rendezvous_options(OptionTable& table, Rendezvous& o, const std::string& timeout_help);

// Completes what the command line has not given. The rank and the number of ranks are the
// environment's RANK and SIZE, if both are set; else the launcher's (nezha/launch.h); else
// whichever of RANK and SIZE is set. Throws UsageError.
void take_from_environment(Rendezvous& o);

// Throws UsageError if it is not known who this process is or where the ranks meet.
void check_rendezvous(const Rendezvous& o);

// Makes the shared path, if one is given. Throws UsageError.
void make_shared_path(const Rendezvous& o);

}  // namespace nezha::bench
