// SPDX-License-Identifier: Apache-2.0
// What a context is made of. It is fixed once the context has joined its ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/cores.h"
#include "common/log.h"
#include "common/unique_id.h"
#include "context/directory.h"
#include "context/store_directory.h"
#include "flare_offload/engine/flare_engine.h"
#include "nezha/algorithm.h"
#include "nezha/context.h"
#include "rails/nic_selector.h"
#include "transport/endpoint.h"

namespace nezha {

struct Setup {
  // What the caller gave, of a rank whose record is not published yet. Throws InvalidArgument, and
  // tells the other ranks why, if rank and size are missing or wrong.
  Setup(std::shared_ptr<StoreDirectory::Store> store, ContextOptions given);
  // The context of ranks that all know its id, and need no word of rank 0. `given` names rank and
  // size.
  Setup(std::shared_ptr<Endpoint> own, std::shared_ptr<Directory> ranks, ContextOptions given,
        const UniqueId& id);
  // The context of those ranks of `parent`, which this one is among.
  Setup(const Setup& parent, const std::vector<int>& group, UniqueId id);

  int rank() const { return options.rank; }
  int size() const { return options.size; }
  Progress& progress() const { return endpoint->progress(); }
  // Returns the rank's number in the directory.
  int listed(int rank) const {
    return directory_ranks.empty() ? rank : directory_ranks[static_cast<size_t>(rank)];
  }
  bool is_split() const { return !directory_ranks.empty(); }

  std::shared_ptr<Endpoint> endpoint;      // null until it joins, unless it was given
  std::shared_ptr<Directory> directory;    // where the ranks publish their records
  std::vector<int> directory_ranks;        // of a context that was split from another
  ContextOptions options;                  // with all that was not given
  Algorithm algorithm = Algorithm::kAuto;  // of operations that choose none
  bool checks_pointers = false;            // NEZHA_CHECK_POINTERS
  std::string settings;                    // what is the same on all ranks, as text
  std::string rank_of;                     // "rank 1 of 4", as errors name this rank
  RankLog log;                             // whose lines name this rank
  std::string self;         // this rank and its process, as other ranks' errors name them
  Cores cores;              // that this process may use
  ChosenInterfaces chosen;  // by rail name, if the rails are "auto"
  UniqueId job;             // 0: it is rank 0's choice, which is not known yet
  std::vector<Rail> rails;  // in the order of options.rails
  std::optional<flare::FlareOptions> switch_rail;
  bool is_switch_alone = false;  // no other rail was named
};

}  // namespace nezha
