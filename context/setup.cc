// SPDX-License-Identifier: Apache-2.0
#include "context/setup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/launch.h"
#include "nezha/errors.h"

namespace nezha {

Setup::Setup(std::shared_ptr<StoreDirectory::Store> store, ContextOptions given)
    : options(std::move(given)) {
  if (store == nullptr)
    throw InvalidArgument("nezha: Context::create: there is no store; give one");
  directory = std::make_shared<StoreDirectory>(std::move(store));
  if (const absl::Status status = complete_rank_and_size(options.rank, options.size);
      !status.ok()) {
    directory->refuse(options.rank, status.message());
    throw InvalidArgument("nezha: " + std::string(status.message()));
  }
  rank_of = absl::StrCat("rank ", options.rank, " of ", options.size);
  log = log_of_rank(options.rank, options.size);
}

Setup::Setup(std::shared_ptr<Endpoint> own, std::shared_ptr<Directory> ranks, ContextOptions given,
             const UniqueId& id)
    : endpoint(std::move(own)),
      directory(std::move(ranks)),
      options(std::move(given)),
      rank_of(absl::StrCat("rank ", options.rank, " of ", options.size)),
      log(log_of_rank(options.rank, options.size)),
      job(id) {}

Setup::Setup(const Setup& parent, const std::vector<int>& group, UniqueId id)
    : endpoint(parent.endpoint),
      directory(parent.directory),
      options(parent.options),
      algorithm(parent.algorithm),
      checks_pointers(parent.checks_pointers),
      settings(parent.settings),
      self(parent.self),
      cores(parent.cores),
      chosen(parent.chosen),
      job(id),
      rails(parent.rails),
      switch_rail(parent.switch_rail),
      is_switch_alone(parent.is_switch_alone) {
  const auto own = std::find(group.begin(), group.end(), parent.rank());
  options.rank = static_cast<int>(own - group.begin());
  options.table.clear();  // only the parent uses the table
  options.size = static_cast<int>(group.size());
  rank_of = absl::StrCat("rank ", options.rank, " of ", options.size, " (split from ",
                         parent.rank_of, ")");
  log = log_of_part(rank_of);
  directory_ranks.reserve(group.size());
  for (const int rank : group) directory_ranks.push_back(parent.listed(rank));
}

}  // namespace nezha
