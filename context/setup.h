// SPDX-License-Identifier: Apache-2.0
// What a context is made of. The setup does not change once the context has joined.
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
  // Makes the setup of a rank whose record is not published yet, from what the caller gave. If rank
  // and size are missing or wrong, this tells the other ranks why and throws InvalidArgument.
  Setup(std::shared_ptr<StoreDirectory::Store> store, ContextOptions given);
  // Makes the setup of a context whose ranks all know its id, and need not hear it from rank 0.
  // `given` names rank and size.
  Setup(std::shared_ptr<Endpoint> own, std::shared_ptr<Directory> ranks, ContextOptions given,
        const UniqueId& id);
  // Makes the setup of a context of the ranks `group` of `parent`, which include this rank.
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
  std::vector<int> directory_ranks;        // see listed(); empty unless it was split from another
  ContextOptions options;                  // completed by joining
  Algorithm algorithm = Algorithm::kAuto;  // the one for operations that choose none
  bool checks_pointers = false;            // NEZHA_CHECK_POINTERS
  std::string settings;                    // AgreedSettings, encoded
  std::string rank_of;                     // "rank 1 of 4", as errors name this rank
  RankLog log;                             // names this rank in each line
  std::string self;         // this rank and its process, as other ranks' errors name them
  Cores cores;              // the cores that this process may use
  ChosenInterfaces chosen;  // keyed by rail name, if the rails are "auto"
  UniqueId job;             // the context's id; 0: rank 0 chooses it, and it is not known yet
  std::vector<Rail> rails;  // in the order of options.rails
  std::optional<flare::FlareOptions> switch_rail;
  bool is_switch_alone = false;  // no other rail was named
};

}  // namespace nezha
