// SPDX-License-Identifier: Apache-2.0
#include "common/launch.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace nezha {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

// Clears all variables except these during the test.
class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() {
    for (char** entry = environ; *entry != nullptr; ++entry) saved_.emplace_back(*entry);
    clearenv();
  }
  ~LaunchTest() override {
    clearenv();
    for (const std::string& entry : saved_) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
    }
  }

  static void set(const Variables& variables) {
    clearenv();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> saved_;
};

struct Expected {
  std::string launcher;
  int rank;
  int size;
  int local_rank;
  int local_size;
  std::string job;
};

const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"TORCHELASTIC_RUN_ID", "run7"},
                          {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kHorovod{{"HOROVOD_RANK", "1"},
                         {"HOROVOD_SIZE", "4"},
                         {"HOROVOD_LOCAL_RANK", "0"},
                         {"HOROVOD_LOCAL_SIZE", "1"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "6"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_RANK", "3"},
                         {"PMIX_NAMESPACE", "64552961"}};
const Variables kMvapich{{"MV2_COMM_WORLD_RANK", "2"},
                         {"MV2_COMM_WORLD_SIZE", "3"},
                         {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                         {"MV2_COMM_WORLD_LOCAL_SIZE", "1"}};
const Variables kMpich{
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm{{"SLURM_PROCID", "9"},
                       {"SLURM_NTASKS", "16"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_JOB_ID", "77"},
                       {"SLURM_STEP_ID", "0"}};
const Variables kPmix{{"PMIX_RANK", "4"}, {"PMIX_NAMESPACE", "slurm.pmix.77.0"}};

Variables both(Variables one, const Variables& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

TEST_F(LaunchTest, EachLauncherHasItsVariables) {
  const std::pair<Variables, Expected> cases[] = {
      {{}, {"", -1, -1, -1, -1, ""}},
      {kTorchrun, {"torchrun", 5, 8, 1, 4, "run7.2"}},
      {kHorovod, {"Horovod", 1, 4, 0, 1, ""}},
      {kOpenMpi, {"Open MPI", 3, 6, 1, 2, "64552961"}},
      {kMvapich, {"MVAPICH", 2, 3, 0, 1, ""}},
      {kMpich, {"PMI", 0, 2, 0, 2, ""}},
      {kSlurm, {"Slurm", 9, 16, 1, -1, "77.0"}},
      {kPmix, {"PMIx", 4, -1, -1, -1, "slurm.pmix.77.0"}},
      // Optional variables may be missing, and torchrun's run may have no id.
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {"torchrun", 0, 1, -1, -1, ""}},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TORCHELASTIC_RUN_ID", "none"}},
       {"torchrun", 0, 1, -1, -1, ""}},
      // Other programs use such names for other purposes.
      {{{"RANK", "3"}, {"SIZE", "4"}, {"LOCAL_RANK", "x"}}, {"", -1, -1, -1, -1, ""}},
      // salloc sets these in a shell that is no task.
      {{{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}, {"", -1, -1, -1, -1, ""}},
      {{{"PMI_RANK", ""}, {"PMI_SIZE", "x"}}, {"", -1, -1, -1, -1, ""}},
      // One launcher started inside the other.
      {both(kSlurm, kOpenMpi), {"Open MPI", 3, 6, 1, 2, "64552961"}},
      {both(kSlurm, kTorchrun), {"torchrun", 5, 8, 1, 4, "run7.2"}},
      {both(kOpenMpi, kTorchrun), {"torchrun", 5, 8, 1, 4, "run7.2"}},
      {both(kOpenMpi, kHorovod), {"Horovod", 1, 4, 0, 1, ""}},
      {both(kSlurm, kMpich), {"PMI", 0, 2, 0, 2, ""}},
      {both(kPmix, kSlurm), {"Slurm", 9, 16, 1, -1, "77.0"}},
  };
  for (const auto& [variables, expected] : cases) {
    set(variables);
    SCOPED_TRACE(::testing::PrintToString(variables));
    const auto found = read_launch_environment();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->launcher, expected.launcher);
    EXPECT_EQ(found->rank, expected.rank);
    EXPECT_EQ(found->size, expected.size);
    EXPECT_EQ(found->local_rank, expected.local_rank);
    EXPECT_EQ(found->local_size, expected.local_size);
    EXPECT_EQ(found->job, expected.job);
  }
}

TEST_F(LaunchTest, TheLauncherTellsHowManyRanksThisHostHas) {
  struct Case {
    Variables variables;
    int size;  // of the context
    int expected;
  };
  const Case cases[] = {
      {{}, 4, 0},
      {kTorchrun, 8, 4},
      {kTorchrun, 2, 4},   // the context has only some of the launcher's ranks
      {kTorchrun, 16, 0},  // the context has ranks that another program started
      {kMpich, 2, 2},
      {kSlurm, 16, 0},
      {both(kSlurm, {{"SLURM_NTASKS_PER_NODE", "8"}}), 16, 8},
      {both(kSlurm, {{"SLURM_NTASKS_PER_NODE", "32"}}), 16, 16},  // a step of a larger job
      {both(kSlurm, {{"SLURM_NTASKS_PER_NODE", "x"}}), 16, 0},
      {both(kTorchrun, {{"SLURM_NTASKS_PER_NODE", "1"}}), 8, 4},
      {kPmix, 4, 0},
      {{{"WORLD_SIZE", "x"}}, 4, 0},
  };
  for (const Case& c : cases) {
    set(c.variables);
    EXPECT_EQ(launched_here(c.size), c.expected) << ::testing::PrintToString(c.variables);
  }
}

TEST_F(LaunchTest, MalformedAndContradictoryValuesAreErrorsThatNameTheVariables) {
  const std::pair<Variables, std::vector<std::string>> cases[] = {
      {{{"WORLD_SIZE", "2"}, {"RANK", "one"}}, {"RANK is 'one'"}},
      {{{"WORLD_SIZE", "2"}, {"RANK", "-1"}}, {"RANK is '-1'"}},
      {{{"WORLD_SIZE", "0"}, {"RANK", "0"}}, {"WORLD_SIZE is '0'"}},
      {{{"WORLD_SIZE", "99999999999"}, {"RANK", "0"}}, {"WORLD_SIZE is '99999999999'"}},
      {{{"WORLD_SIZE", "2x"}, {"RANK", "0"}}, {"WORLD_SIZE is '2x'"}},
      {{{"WORLD_SIZE", "2"}}, {"WORLD_SIZE is set", "RANK is not", "torchrun"}},
      {{{"SLURM_PROCID", "2"}}, {"SLURM_PROCID is set", "SLURM_NTASKS is not"}},
      {{{"HOROVOD_RANK", "4"}, {"HOROVOD_SIZE", "4"}}, {"HOROVOD_RANK is 4", "HOROVOD_SIZE is 4"}},
      {both(kSlurm, {{"SLURM_LOCALID", "1.5"}}), {"SLURM_LOCALID is '1.5'"}},
      {both(kMpich, {{"MPI_LOCALRANKID", "2"}}), {"MPI_LOCALRANKID is 2", "MPI_LOCALNRANKS is 2"}},
      {both(kMpich, {{"MPI_LOCALNRANKS", "3"}}), {"MPI_LOCALNRANKS is 3", "PMI_SIZE is 2"}},
      {{{"PMIX_RANK", std::string(1000, '7')}}, {"PMIX_RANK is '777"}},
  };
  for (const auto& [variables, texts] : cases) {
    set(variables);
    const absl::Status status = read_launch_environment().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << ::testing::PrintToString(variables);
    EXPECT_LT(status.message().size(), 300u);
    for (const std::string& text : texts) {
      EXPECT_NE(status.message().find(text), absl::string_view::npos) << text << " in " << status;
    }
  }
}

TEST_F(LaunchTest, TheProgramsRankAndSizeTakePrecedence) {
  struct Case {
    int rank, size;  // given
    Variables variables;
    int expected_rank, expected_size;
  };
  const Case cases[] = {
      {-1, -1, kOpenMpi, 3, 6}, {0, 2, kOpenMpi, 0, 2}, {0, -1, kOpenMpi, 0, 6},
      {-1, 9, kOpenMpi, 3, 9},  {-1, 5, kPmix, 4, 5},   {1, 2, {{"WORLD_SIZE", "x"}}, 1, 2},
      {1, 2, {}, 1, 2},
  };
  for (const Case& c : cases) {
    set(c.variables);
    int rank = c.rank;
    int size = c.size;
    const absl::Status status = complete_rank_and_size(rank, size);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(rank, c.expected_rank);
    EXPECT_EQ(size, c.expected_size);
  }
}

TEST_F(LaunchTest, WithoutARankThereIsAnErrorThatSaysWhatToDo) {
  struct Case {
    int rank, size;  // given
    Variables variables;
    std::vector<std::string> texts;
  };
  const Case cases[] = {
      {-1, -1, {}, {"the rank is not known", "ContextOptions::rank", "mpirun"}},
      {0, -1, {}, {"the size is not known", "ContextOptions::size"}},
      {-1, -1, kPmix, {"the size is not known", "PMIx"}},
      {-1, -1, {{"WORLD_SIZE", "x"}}, {"WORLD_SIZE is 'x'"}},
      {-1, 2, kOpenMpi, {"there is no rank 3 in a context of 2", "the rank from", "Open MPI"}},
      {6, -1, kOpenMpi, {"there is no rank 6 in a context of 6", "the size from", "Open MPI"}},
      {2, 2, kOpenMpi, {"there is no rank 2 in a context of 2"}},
      {-2, 2, {}, {"rank -2"}},
      {0, 0, {}, {"context of 0"}},
  };
  for (const Case& c : cases) {
    set(c.variables);
    int rank = c.rank;
    int size = c.size;
    const absl::Status status = complete_rank_and_size(rank, size);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    for (const std::string& text : c.texts) {
      EXPECT_NE(status.message().find(text), absl::string_view::npos) << text << " in " << status;
    }
  }
}

}  // namespace
}  // namespace nezha
