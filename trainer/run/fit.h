// Fit: holds the objects that training steps need: the data, the order of the samples, the model and the Step. When
// memory runs out, a Fit can raise the number of micro-batches.
//
// A run (trainer/run/trainer.h) and a measurement (trainer/run/measure.h) make their steps with a Fit. A Fit does not
// handle checkpoints, evaluations or reports. It emits an event when it changes the number of micro-batches, or gives
// up graphs or histograms.
//
// Protocol:
//   1. the constructor makes the model; all ranks compare Facts()
//   2. Begin() constructs the Step. To continue a run, the caller then calls Resume(), restores the run's state and
//      calls ResumeAt(). After that, Feed() begins to read samples
//   3. for each step, in order, the caller calls TakeFewerMicroBatches(), and then Run() until Run() returns true. If
//      Run() returns false, the step did not fit in memory, and weights and state are as before the call. The caller
//      then calls GiveWay(). If GiveWay() returns false, the caller releases memory that it holds and calls
//      BeginAgain(). If the caller holds no such memory, it calls HalveMicroBatches()
//
// what can fail -> what the caller sees -> the test that shows it
//   data, model or config that do not fit together -> Error -> tests/bad_input_test.py
//   a step does not fit even in micro-batches of one sample -> Error on every rank -> tests/memory_test.py
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.pb.h"
#include "config/schema/config.pb.h"
#include "data/feed/micro_batches.h"
#include "data/feed/sampler.h"
#include "models/model.h"
#include "observe/run_event.h"
#include "trainer/run/data_wait.h"
#include "trainer/run/foretell.h"
#include "trainer/run/input.h"
#include "trainer/run/micro_batch_choice.h"
#include "trainer/run/open_data.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/step.h"
#include "trainer/step/world.h"

namespace lockstep {

struct Extensions;  // trainer/run/extensions.h

class Fit {
 public:
  // Makes the model. `config` must be completed with the values that follow from the data (MakeFit()). Keeps references
  // to all arguments except `data`. Throws Error.
  Fit(const config::Config& config, TrainingData data, const Models& models, const World& world,
      RunEvents& events);

  // Returns lines of text that must be the same on all ranks so that the ranks' collectives match.
  std::vector<std::string> Facts() const;

  // Constructs the Step, broadcasts the weights of rank 0 to all ranks, and begins to compile the kernels that are
  // generated for the steps. Every rank must call it. Throws Error.
  void Begin();
  // Puts the parameters into gradient buckets in `bucket_order`, the order of the job that saved the state
  // (Step::Resume()).
  void Resume(const std::vector<int64_t>& bucket_order) { step_->Resume(bucket_order); }
  // Sets the step from which the run continues. Call it when the state after `step` steps was restored. A step then has
  // `accumulation` micro-batches, or the number that micro_batch: AUTO has chosen.
  void ResumeAt(int64_t step, int64_t accumulation);
  // Begins to read samples for the step that ResumeAt() has set, or for step 0. Call it once. Throws Error.
  void Feed();

  // Reduces the number of micro-batches, from step `step` (counted from 0) on, if the GPUs have enough free memory for
  // larger ones. Call it before each step. Returns whether it has changed the number; every rank gets the same result.
  bool TakeFewerMicroBatches(int64_t step);

  // Makes the next step with the samples of the training set. Returns false if the step did not fit in memory. Throws
  // Error.
  bool Run(double lr) { return step_->Run(lr, input_->feed); }

  // Gives up histograms or, if none were to be taken, releases the memory of CUDA graphs, and prepares Run() to repeat
  // `step`. Returns false if neither took memory; every rank gets the same result.
  bool GiveWay(int64_t step);
  // Doubles the number of micro-batches, and prepares Run() to repeat `step`, whose samples were already taken from the
  // feed. `failed` is the allocation that failed, if it is known. Throws Error on every rank if a micro-batch already
  // has only one sample.
  void HalveMicroBatches(int64_t step, const std::optional<FailedAllocation>& failed);
  // Prepares Run() to repeat `step`, whose samples were already taken from the feed.
  void BeginAgain(int64_t step);

  const TrainingData& data() const { return data_; }
  // Returns what the samples are made of (trainer/run/made_of.h).
  const std::vector<checkpoint::DataSet>& data_sets() const { return data_sets_; }
  const Preprocessing& preprocessing() const { return preprocessing_; }
  config::Precision precision() const { return precision_; }
  Model& model() { return *model_; }
  Step& step() { return *step_; }
  Input& input() { return *input_; }
  DataWait& data_wait() { return data_wait_; }
  const LoaderOptions& loader_options() const { return loader_options_; }
  // Returns the number of micro-batches of a step, which is a part of a run's state.
  int64_t& accumulation() { return accumulation_; }
  int64_t accumulation() const { return accumulation_; }
  const std::optional<MicroBatchChosen>& chosen() const { return micro_batches_->chosen(); }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  int64_t max_micro_batch() const { return sampler_.max_micro_batch(); }
  // Returns the epoch, counted from 1, of step number `steps_done`, counted from 1.
  int64_t EpochOf(int64_t steps_done) const { return 1 + (steps_done - 1) / steps_per_epoch(); }

  // Returns the predicted memory of this rank's GPU (ForetoldMemoryOf()). Draws no random numbers.
  const std::optional<MemoryReport>& ForetoldMemory();

 private:
  void SeekTo(int64_t step);

  const config::Config& config_;
  const World& world_;
  RunEvents& events_;
  const config::Precision precision_;
  const TrainingData data_;
  const std::vector<checkpoint::DataSet> data_sets_;
  const Models& models_;
  const Preprocessing preprocessing_;
  const std::shared_ptr<Model> model_;
  std::unique_ptr<Foreteller> foreteller_;  // constructed when it is first needed
  std::optional<MicroBatchChoice> micro_batches_;
  StepForm foretold_form_{
      .micro_batch = 0};  // the form of foretold_memory_; 0 samples: nothing was predicted yet
  std::optional<MemoryReport> foretold_memory_;
  std::optional<Step> step_;
  int64_t accumulation_;
  Sampler sampler_;
  const LoaderOptions loader_options_;
  std::optional<Input> input_;
  DataWait data_wait_;
};

// Opens the data of `config`, completes `config` with the values that follow from the data, and constructs a Fit in
// `fit`. Every rank must call MakeFit(). Throws Error on every rank.
void MakeFit(std::optional<Fit>& fit, config::Config& config, const Extensions& extensions,
             const World& world, RunEvents& events);

}  // namespace lockstep
