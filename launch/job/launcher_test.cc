#include "launch/job/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

// Returns a function that reads `variables`, which must outlive it, like std::getenv.
std::function<const char*(const char*)> Reading(const Variables& variables) {
  return [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Launcher Found(const Variables& variables) { return FindLauncher(Reading(variables)); }

TEST(Launcher, IsToldByItsVariables) {
  EXPECT_EQ(Found({}), Launcher::kNone);
  EXPECT_EQ(Found({{"OMPI_COMM_WORLD_SIZE", "2"}}), Launcher::kMpirun);
  EXPECT_EQ(Found({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}), Launcher::kSrun);
  // A rank has these variables if mpirun runs inside a Slurm batch job.
  EXPECT_EQ(Found({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}, {"SLURM_PROCID", "0"}}),
            Launcher::kMpirun);
  // These processes run alone: the process of a Slurm batch script, a single task of srun, and a single rank of an
  // mpiexec.
  EXPECT_EQ(Found({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), Launcher::kNone);
  EXPECT_EQ(Found({{"SLURM_STEP_NUM_TASKS", "1"}}), Launcher::kNone);
  EXPECT_EQ(Found({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}), Launcher::kNone);
}

TEST(Launcher, KnowsHowManyRanksThereAre) {
  const auto ranks = [](const Variables& variables) { return RanksOfJob(Reading(variables)); };
  EXPECT_EQ(ranks({}), 0);
  EXPECT_EQ(ranks({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}}), 4);
  EXPECT_EQ(ranks({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "3"}}), 3);
  EXPECT_EQ(ranks({{"PMIX_RANK", "0"}}), 0);
}

TEST(Launcher, KnowsWhetherAllRanksAreOnThisMachine) {
  const auto one = [](const Variables& variables) { return AreOnOneMachine(Reading(variables)); };
  EXPECT_TRUE(one({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}));
  EXPECT_FALSE(one({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}));
  EXPECT_FALSE(one({{"PMIX_RANK", "0"}}));
}

TEST(Launcher, RefusesRanksThatCouldNotMeet) {
  const auto error = [](const Variables& variables) {
    return MessageOf(ExitStatus::kUsage, [&] { Found(variables); });
  };
  EXPECT_THAT(error({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}),
              HasSubstr("one of 4 ranks by an mpiexec"));
  EXPECT_THAT(error({{"MV2_COMM_WORLD_SIZE", "4"}}), HasSubstr("(MV2_COMM_WORLD_SIZE is set)"));
  EXPECT_THAT(error({{"SLURM_STEP_NUM_TASKS", "4"}}),
              HasSubstr("srun started 4 tasks that cannot find each other: use srun --mpi=pmix"));
  EXPECT_THAT(error({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}}), HasSubstr("srun"));
}

}  // namespace
}  // namespace lockstep
