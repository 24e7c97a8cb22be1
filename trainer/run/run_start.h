// Decides whether a run begins at step 0 or continues from a checkpoint. The functions of this file make all ranks
// agree on the job's name, check that all ranks see the run folder, and choose the newest undamaged checkpoint.
//
// what can fail -> what the caller sees -> the test that shows it (tests/resume_test.py)
//   the ranks' machines share no folder -> Error (kUsage) on every rank -> test_machines_that_share_no_disk
//   the newest checkpoint is damaged -> a warning, and the checkpoint before it is used
//     -> test_damage_is_named_and_the_one_before_taken
//   the checkpoint to begin from is missing or damaged -> Error (kCheckpoint) on every rank
//     -> test_from_what_cannot_be_gone_on_from
//   the training or the validation samples have changed -> Error (kUsage) on every rank -> tests/made_of_test.py
//   the run began when a metric meant something else -> a warning, and the run goes on with that meaning
//     -> tests/older_run_test.py, test_metrics_of_an_older_run_keep_their_meaning
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

// The point from which a run begins or continues. All ranks have the same values.
struct RunStart {
  std::optional<Checkpoint> checkpoint;  // empty: the run begins at step 0
  checkpoint::Manifest manifest;         // the manifest of the checkpoint
  bool is_of_another_run = false;        // whether the checkpoint belongs to another run
  // The differences between the checkpoint's config and validation samples and those of this run, if the checkpoint
  // belongs to another run; otherwise empty.
  std::vector<std::string> differences;
  // Whether the run has other validation samples than the run of the checkpoint, so that earlier evaluations do not
  // count.
  bool validates_anew = false;
  std::string job;  // the name of this job
  // If the job was started again after a failure: the last step in the run's log, and the Unix time of the log's last
  // line; otherwise 0 and 0.
  int64_t failed_step = 0;
  double failed_at = 0;
};

// Starts a thread that reads this rank's part of the newest checkpoint in `run_dir`, if there is one, into the page
// cache. The destructor of the result waits for this thread, so the caller should keep the result until the caller
// itself has read the checkpoint.
std::future<void> ReadCheckpointAhead(const std::string& run_dir, const World& world);

// Returns the name of the job: the value of `given` on rank 0, or a random name if that value is empty. All ranks get
// the same name. Every rank must call NameJob(), RequireSharedFolder() and FindStart().
std::string NameJob(const std::string& given, const World& world);

// Throws Error on every rank unless all ranks see the folder that rank 0 has locked for `job`. The ranks must share
// this folder, because each rank writes its part of a checkpoint to it.
void RequireSharedFolder(const std::string& run_dir, const std::string& job, const World& world);

// Returns the start from the newest undamaged checkpoint of the run folder. If the folder has no checkpoint, returns
// the start from the checkpoint `from`, or from step 0 if `from` is empty. `folder` has a value only on rank 0.
// `restarts` is the number of times that the job was started again after failures. `data` is what the run's samples are
// made of (trainer/run/made_of.h); they must be those of the checkpoint. Throws Error on every rank.
RunStart FindStart(std::optional<RunFolder>& folder, const config::Config& config,
                   const std::vector<checkpoint::DataSet>& data, const std::string& from,
                   int64_t restarts, const std::string& job, const World& world);

// Returns the value of Manifest::metric_definitions (ckpt/manifest.proto) for the checkpoints of a run that starts from
// `start`.
int MetricDefinitionsOf(const RunStart& start, const config::Config& config);

// If the checkpoint of `start` belongs to a run in which a metric had another meaning, changes the name of the metric
// in `config` so that checkpoint.keep_best and early_stopping mean what they meant. Returns a line for the user about
// each metric that was changed, or that has a new definition, and a line if the run goes on with other metrics.
std::vector<std::string> FollowMetrics(const RunStart& start, config::Config& config);

// Returns whether the validation losses before the checkpoint of `start` may be compared with those of the run: they
// must be of the same samples, by the same loss.
bool LossesCount(const RunStart& start);

// Returns whether the evaluations that early stopping has counted before the checkpoint of `start` count for a run with
// `config`, which FollowMetrics() has changed: they must have been judged by the same metric, over the same samples.
bool EvaluationsCount(const RunStart& start, const config::Config& config);

// Returns the step of the checkpoint from which the run continues, if it is a checkpoint of the same run.
std::optional<int64_t> ResumedStep(const RunStart& start);

// Returns the event that says from which checkpoint the run continues. `start.checkpoint` must have a value.
RunResumed ResumedEvent(const RunStart& start);

// Returns lines that describe the training data. When a run continues, these lines must equal the lines that its
// checkpoint holds (RequireSameData()).
std::vector<std::string> DataFacts(const Dataset& train);

// Returns the lines of DataFacts(), and lines about everything else that must be the same on all ranks so that the
// ranks' collectives match. `validation` is null if there are no validation samples.
// `data` is the result of DataSetsOf().
std::vector<std::string> FactsOf(const Dataset& train, const Dataset* validation,
                                 const std::vector<checkpoint::DataSet>& data,
                                 const std::vector<NamedTensor>& model);

// Throws Error (kData) if the data lines in the manifest of `start` differ from `now`, the result of DataFacts().
void RequireSameData(const RunStart& start, const std::vector<std::string>& now);

}  // namespace lockstep
