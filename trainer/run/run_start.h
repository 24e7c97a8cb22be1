// Decides whether a run begins or goes on from a checkpoint. The functions here make all ranks agree on the job's name,
// check that all ranks see the run folder, and choose the newest undamaged checkpoint.
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
#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "observe/run_event.h"
#include "trainer/run/run_folder.h"
#include "trainer/step/world.h"

namespace lockstep {

// Where a run begins. It is the same on all ranks.
struct RunStart {
  std::optional<Checkpoint> checkpoint;  // nothing: the run begins at step 0
  checkpoint::Manifest manifest;         // the manifest of the checkpoint
  bool is_of_another_run = false;        // whether the checkpoint belongs to another run
  // The differences between the checkpoint's config and this run's; none if the checkpoint is the run's own.
  std::vector<std::string> differences;
  std::string job;  // the name of this job
  // If the job was started again after a failure: the last step that the log has, and the Unix time of its last line;
  // otherwise 0.
  int64_t failed_step = 0;
  double failed_at = 0;
};

// Reads this rank's part of a folder's newest checkpoint, if there is one, into the page cache. The destructor of the
// result waits until the reading has ended, so destroy the result late.
std::future<void> ReadCheckpointAhead(const std::string& run_dir, const World& world);

// Returns a name for the job that no other job has and that is the same on all ranks. If rank 0 has a `given` name,
// returns that one. Every rank must call this function and the functions below.
std::string NameJob(const std::string& given, const World& world);

// Throws Error on every rank unless all ranks see the folder that rank 0 has locked. All ranks write checkpoints to
// this folder.
void RequireSharedFolder(const std::string& run_dir, const std::string& job, const World& world);

// Returns a start from the run folder's newest undamaged checkpoint, or, if the folder has none, from the checkpoint
// `from`. Only rank 0 has a `folder`. `restarts`: how often the job was started again after failures. Throws Error on
// every rank.
RunStart FindStart(std::optional<RunFolder>& folder, const config::Config& config,
                   const std::string& from, int64_t restarts, const std::string& job,
                   const World& world);

// Returns the step of the run's own checkpoint from which it continues, if it does.
std::optional<int64_t> ResumedStep(const RunStart& start);

// Returns the event that says from which checkpoint the run continues. `start` must have one.
RunResumed ResumedEvent(const RunStart& start);

// Returns lines that describe the training data. If a run continues, they must equal the lines of the run's start.
std::vector<std::string> DataFacts(const Dataset& train);

// Returns the lines of DataFacts(), and lines about everything else that must be the same on all ranks so that their
// collectives match. `validation` is null if there is none.
std::vector<std::string> FactsOf(const Dataset& train, const Dataset* validation,
                                 const std::vector<NamedTensor>& model);

// Throws Error (kData) if the lines in the checkpoint differ from `now`, the lines of DataFacts().
void RequireSameData(const RunStart& start, const std::vector<std::string>& now);

}  // namespace lockstep
