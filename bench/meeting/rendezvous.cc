// SPDX-License-Identifier: Apache-2.0
#include "bench/meeting/rendezvous.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/meeting/option_values.h"
#include "nezha/errors.h"
#include "nezha/launch.h"

namespace nezha::bench {
namespace {

void check_meeting_place(const Rendezvous& o) {
  const int given =
      int{!o.shared_path.empty()} + int{!o.store_url.empty()} + int{!o.redis_host.empty()};
  if (given == 1) return;
  constexpr absl::string_view kPlaces = "one of --shared-path, --store, --redis-host";
  throw UsageError(given == 0 ? absl::StrCat(kPlaces, " is needed, for the rendezvous")
                              : absl::StrCat("give only ", kPlaces, "; there are ", given));
}

}  // namespace

void add_rendezvous_options(OptionTable& table, Rendezvous& o, const std::string& timeout_help) {
  table.insert(
      table.end(),
      {{0, "", "", "Ranks and how they meet", {}},
       {'s', "size", "N", "number of ranks (default: $SIZE, or the launcher's: mpirun, srun, ...)",
        [&o](const auto& v) { o.size = to_number(v, 1); }},
       {'r', "rank", "N", "this process's rank, from 0 (default: $RANK, or the launcher's)",
        [&o](const auto& v) { o.rank = to_number(v, 0); }},
       {0, "shared-path", "DIR", "a directory that all ranks see; made if its parent exists",
        [&o](const auto& v) { o.shared_path = v; }},
       {0, "store", "URL", "or a Redis server: redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]",
        [&o](const auto& v) { o.store_url = v; }},
       {0, "redis-host", "HOST", "or a Redis server that has no password",
        [&o](const auto& v) { o.redis_host = v; }},
       {0, "redis-port", "PORT", "its port (default: 6379)",
        [&o](const auto& v) { o.redis_port = to_number(v, 1, 65535); }},
       {'x', "prefix", "NAME",
        "rendezvous prefix, unique for each run (default: the launcher's name of the job, or"
        " prefix)",
        [&o](const auto& v) { o.prefix = v; }},
       {0, "timeout", "TIME", timeout_help, [&o](const auto& v) {
          o.timeout = absl::ToChronoMilliseconds(absl::Ceil(to_duration(v), absl::Milliseconds(1)));
        }}});
}

void take_from_environment(Rendezvous& o) {
  LaunchEnvironment launch;
  const bool needed = o.rank < 0 || o.size < 1;
  // Only these programs use RANK and SIZE; a launcher may be around all that is run here.
  if (needed && (std::getenv("RANK") == nullptr || std::getenv("SIZE") == nullptr)) {
    try {
      launch = launchEnvironment();
    } catch (const InvalidArgument& error) {
      throw UsageError(error.what());
    }
  }
  if (o.prefix.empty()) o.prefix = launch.job.empty() ? "prefix" : launch.job;
  if (launch.launcher.empty()) {
    const auto set_size = [&](const auto& v) { o.size = to_number(v, 1); };
    const auto set_rank = [&](const auto& v) { o.rank = to_number(v, 0); };
    if (o.size < 1) from_environment("SIZE", set_size);
    if (o.rank < 0) from_environment("RANK", set_rank);
  }
  if (o.size < 1) o.size = launch.size;
  if (o.rank < 0) o.rank = launch.rank;
}

void check_rendezvous(const Rendezvous& o) {
  constexpr const char* kOr =
      " is needed, or a launcher such as mpirun, or RANK and SIZE in the"
      " environment";
  if (o.size < 1) throw UsageError(std::string("--size") + kOr);
  if (o.rank < 0) throw UsageError(std::string("--rank") + kOr);
  if (o.rank >= o.size) {
    throw UsageError(absl::StrCat("rank ", o.rank, " of ", o.size, ": ranks are 0 to size - 1"));
  }
  check_meeting_place(o);
}

// The first rank makes the directory, but only in one that exists, because a mistyped name is
// likelier there.
void make_shared_path(const Rendezvous& o) {
  const std::string& path = o.shared_path;
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::create_directory(path, error);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return;
  throw UsageError("--shared-path '" + path +
                   "': not a directory, and it cannot be made: " + error.message());
}

}  // namespace nezha::bench
