// SPDX-License-Identifier: Apache-2.0
#include "common/launch.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nezha {
namespace {

// The variables of one launcher; nullptr if it has no such variable.
struct Launcher {
  const char* name;
  const char* mark;  // set if this launcher started the process
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* job;
  const char* attempt;  // tells runs of one job apart
};

// The launchers are in order of precedence: a launcher that another one may start comes before the
// other one. RANK alone is no launcher's mark, because too many programs use that name.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    {"Horovod", "HOROVOD_RANK", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK",
     "HOROVOD_LOCAL_SIZE", nullptr, nullptr},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", nullptr},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"PMI", "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr,
     nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr,
     "SLURM_JOB_ID", "SLURM_STEP_ID"},
    {"PMIx", "PMIX_RANK", "PMIX_RANK", nullptr, nullptr, nullptr, "PMIX_NAMESPACE", nullptr},
};

// Slurm sets this only if the job asked for a number of tasks per node. A step may have fewer
// ranks.
constexpr const char* kSlurmPerNode = "SLURM_NTASKS_PER_NODE";
constexpr absl::string_view kNoRunId = "none";  // torchrun's --rdzv-id by default

absl::string_view value_of(const char* variable) {
  const char* value = variable == nullptr ? nullptr : std::getenv(variable);
  return value == nullptr ? absl::string_view() : absl::string_view(value);
}

absl::Status bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Leaves `number` as it is if the variable is not set.
absl::Status read(const char* variable, int least, int& number) {
  const absl::string_view text = value_of(variable);
  if (text.empty()) return absl::OkStatus();
  if (absl::SimpleAtoi(text, &number) && number >= least) return absl::OkStatus();
  return bad(absl::StrCat("the environment variable ", variable, " is '", text.substr(0, 40),
                          "', which is no whole number of at least ", least));
}

absl::Status contradiction(const char* one, int value, const char* other, int other_value) {
  return bad(absl::StrCat("the environment contradicts itself: ", one, " is ", value, " and ",
                          other, " is ", other_value));
}

absl::Status check_together(const Launcher& launcher, const LaunchEnvironment& found) {
  if (launcher.size != nullptr && (found.rank < 0) != (found.size < 0)) {
    const bool has_rank = found.rank >= 0;
    return bad(absl::StrCat("the environment variable ", has_rank ? launcher.rank : launcher.size,
                            " is set and ", has_rank ? launcher.size : launcher.rank, " is not; ",
                            launcher.name, " sets both"));
  }
  if (found.rank >= 0 && found.size >= 0 && found.rank >= found.size) {
    return contradiction(launcher.rank, found.rank, launcher.size, found.size);
  }
  if (found.local_size >= 0 && found.local_rank >= found.local_size) {
    return contradiction(launcher.local_rank, found.local_rank, launcher.local_size,
                         found.local_size);
  }
  if (found.local_size > found.size) {
    return contradiction(launcher.local_size, found.local_size, launcher.size, found.size);
  }
  return absl::OkStatus();
}

std::string job_name(const Launcher& launcher) {
  const absl::string_view job = value_of(launcher.job);
  if (job.empty() || job == kNoRunId) return std::string();
  const absl::string_view attempt = value_of(launcher.attempt);
  return attempt.empty() ? std::string(job) : absl::StrCat(job, ".", attempt);
}

absl::StatusOr<LaunchEnvironment> read(const Launcher& launcher) {
  LaunchEnvironment found;
  found.launcher = launcher.name;
  found.job = job_name(launcher);
  for (const absl::Status& status :
       {read(launcher.rank, 0, found.rank), read(launcher.size, 1, found.size),
        read(launcher.local_rank, 0, found.local_rank),
        read(launcher.local_size, 1, found.local_size)}) {
    if (!status.ok()) return status;
  }
  if (absl::Status status = check_together(launcher, found); !status.ok()) return status;
  return found;
}

}  // namespace

absl::StatusOr<LaunchEnvironment> read_launch_environment() {
  for (const Launcher& launcher : kLaunchers) {
    if (!value_of(launcher.mark).empty()) return read(launcher);
  }
  return LaunchEnvironment();
}

absl::Status complete_rank_and_size(int& rank, int& size) {
  std::string sources;
  if (rank == -1 || size == -1) {
    const auto found = read_launch_environment();
    if (!found.ok()) return found.status();
    const auto take = [&](int& number, int value, absl::string_view what) {
      if (number != -1) return;
      number = value;
      absl::StrAppend(&sources, sources.empty() ? "; " : " and ", "the ", what);
    };
    take(rank, found->rank, "rank");
    take(size, found->size, "size");
    if (rank == -1 || size == -1) {
      const absl::string_view missing = rank == -1 ? "rank" : "size";
      return bad(absl::StrCat("the ", missing, " is not known: set ContextOptions::", missing,
                              ", or start the ranks with a launcher that sets it (torchrun, mpirun,"
                              " srun, horovodrun); the launcher of this environment is ",
                              found->launcher.empty() ? "not known" : found->launcher));
    }
    absl::StrAppend(&sources, " from the environment of ", found->launcher);
  }
  if (rank >= 0 && rank < size) return absl::OkStatus();
  return bad(absl::StrCat("there is no rank ", rank, " in a context of ", size, " ranks", sources));
}

int launched_here(int size) {
  const auto found = read_launch_environment();
  if (!found.ok() || found->size < size) return 0;
  if (found->local_size > 0) return found->local_size;
  int per_node = 0;
  const bool is_known = found->launcher == "Slurm" && read(kSlurmPerNode, 1, per_node).ok();
  return is_known ? std::min(per_node, found->size) : 0;
}

}  // namespace nezha
