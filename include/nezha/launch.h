// SPDX-License-Identifier: Apache-2.0
/// What the launcher of this process (torchrun, mpirun, srun, horovodrun) says about the job.
#pragma once

#include <string>

#include "nezha/export.h"

namespace nezha {

/// This process's place in its job. A member that the launcher does not give is -1 or empty.
struct LaunchEnvironment {
  /// The launcher ("Open MPI", "Slurm", ...); empty if no launcher that nezha knows started the
  /// process.
  std::string launcher;
  /// 0 <= rank < size.
  int rank = -1;
  /// How many ranks the job has.
  int size = -1;
  /// The rank among the processes of this host: 0 <= local_rank < local_size.
  int local_rank = -1;
  /// How many of the job's ranks are on this host.
  int local_size = -1;
  /// A name of this run of the job, the same on all ranks: a prefix for the rendezvous. Launchers
  /// may use a name again for a later run. A torchrun job that is restarted gets a new one.
  std::string job;
};

/// Reads the environment. The first of these launchers whose variable is set counts, because one
/// may run inside another (mpirun in a Slurm allocation, torchrun under srun):
///
///   - torchrun, if WORLD_SIZE is set: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; the job is
///     TORCHELASTIC_RUN_ID with TORCHELASTIC_RESTART_COUNT
///   - Horovod, if HOROVOD_RANK is set: HOROVOD_ with RANK, SIZE, LOCAL_RANK, LOCAL_SIZE
///   - Open MPI, if OMPI_COMM_WORLD_RANK is set: OMPI_COMM_WORLD_ with the same; the job is
///     PMIX_NAMESPACE
///   - MVAPICH, if MV2_COMM_WORLD_RANK is set: MV2_COMM_WORLD_ with the same
///   - PMI (MPICH, Intel MPI), if PMI_RANK is set: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and
///     MPI_LOCALNRANKS
///   - Slurm, if SLURM_PROCID is set: SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID; the job is
///     SLURM_JOB_ID with SLURM_STEP_ID
///   - PMIx, if PMIX_RANK is set: PMIX_RANK; the job is PMIX_NAMESPACE
///
/// A variable that is empty counts as not set. Thread-safe as long as nobody changes the
/// environment.
///
/// Throws InvalidArgument, which names the variables, if a variable is no whole number in its
/// range, if only one of rank and size is there (except for PMIx), or if they contradict each
/// other.
NEZHA_EXPORT LaunchEnvironment launchEnvironment();

}  // namespace nezha
