// Decides whether a run begins or goes on from a checkpoint. This code agrees with all ranks on the job's name, checks
// that all ranks see the run folder, and chooses the newest whole checkpoint.
//
// what can fail -> what the caller sees -> the test that shows it (tests/resume_test.py)
//   the ranks' machines share no folder -> Error (kUsage) on every rank -> test_machines_that_share_no_disk
//   the newest checkpoint is damaged -> a warning, and the one before is taken
//     -> test_damage_is_named_and_the_one_before_taken
//   the checkpoint to begin from is missing or damaged -> Error (kCheckpoint) on every rank
//     -> test_from_what_cannot_be_gone_on_from
#pragma once

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "ckpt/checkpoint.h"
#include "data/dataset/dataset.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/run/run_folder.h"
#include "trainer/step/world.h"

namespace lockstep {

// Where a run begins, the same on all ranks.
struct RunStart {
  std::optional<Checkpoint> checkpoint;  // nothing: at its beginning
  checkpoint::Manifest manifest;         // the checkpoint's
  bool is_of_another_run = false;        // the checkpoint
  std::vector<std::string> differences;  // of its config from this run's; of the run's own: none
  std::string job;                       // this job's own name
};

// Reads this rank's share of a folder's newest checkpoint into the page cache, if it has one. To be kept until there is
// nothing else to do: the destructor waits.
std::future<void> ReadCheckpointAhead(const std::string& run_dir, const World& world);

// A name that no other job has, the same on all ranks; rank 0's `given`, if it has one. Every rank must call it, and
// the others.
std::string NameJob(const std::string& given, const World& world);

// All ranks must see the folder that rank 0 has locked, as they write into it. Throws Error on every rank.
void RequireSharedFolder(const std::string& run_dir, const std::string& job, const World& world);

// The run folder's newest checkpoint that is whole, or `from`. `folder`: rank 0's. Throws Error on every rank.
RunStart FindStart(std::optional<RunFolder>& folder, const config::Config& config,
                   const std::string& from, const std::string& job, const World& world);

// What a run's data must have in common with those it began with, a line each.
std::vector<std::string> DataFacts(const Dataset& train);

// ... and what must be the same on all ranks for their collectives to match. `validation`: null: none.
std::vector<std::string> FactsOf(const Dataset& train, const Dataset* validation,
                                 const std::vector<NamedTensor>& model);

// `now`: DataFacts(). Throws Error (kData) where those of the checkpoint are others.
void RequireSameData(const RunStart& start, const std::vector<std::string>& now);

}  // namespace lockstep
