// Fit: what a training needs to make its steps: data, order of the samples, model, step, and room in memory.
//
// A run (trainer/run/trainer.h) and a measurement (trainer/run/measure.h) make their steps with it. It knows nothing of
// checkpoints, evaluations or what is told of a run. It emits an event where it changes the way in which steps are made.
//
// Protocol:
//   1. the constructor makes the model; all ranks compare Facts()
//   2. Begin() makes the step. To continue a run, the caller then calls Resume(), restores the run's state and calls
//      ResumeAt(). Feed() begins to read samples
//   3. for each step, in their order: TakeFewerMicroBatches(), and Run() until it returns true. When it returns false,
//      memory did not suffice and nothing has changed: make room with GiveWay(), with what the caller holds itself and
//      BeginAgain(), or at last with HalveMicroBatches()
//
// what can fail -> what the caller sees -> the test that shows it
//   data, model or config that do not go together -> Error -> tests/bad_input_test.py
//   a step does not fit even in micro-batches of one sample -> Error on every rank -> tests/memory_test.py
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  // `config` is complete, with what the data say (MakeFit()). Keeps references to all arguments except `data`. Throws
  // Error.
  Fit(const config::Config& config, TrainingData data, const Models& models, const World& world,
      RunEvents& events);

  // Returns lines that must be the same on all ranks so that their collectives match.
  std::vector<std::string> Facts() const;

  // Makes the step, with the weights of rank 0 on all ranks. Every rank must call it. Throws Error.
  void Begin();
  // Lays the buckets out as they were in the job that saved the state.
  void Resume(const std::vector<int64_t>& bucket_order) { step_->Resume(bucket_order); }
  // Call it when the state after `step` steps was restored, with the number of micro-batches that it was trained in.
  void ResumeAt(int64_t step, int64_t accumulation);
  // Begins to read samples at the present step. Call it once. Throws Error.
  void Feed();

  // Before step `step`, counted from 0: if the GPUs have room for fewer micro-batches by now, begins again with it in
  // these. Returns whether it did, the same on every rank.
  bool TakeFewerMicroBatches(int64_t step);

  // Makes the next step with the samples of the data set. Returns false if memory did not suffice. Throws Error.
  bool Run(double lr) { return step_->Run(lr, input_->feed); }

  // If histograms or CUDA graphs hold memory, gives it up and begins again with `step`. Returns whether it did, the
  // same on every rank.
  bool GiveWay(int64_t step);
  // Begins again with `step`, whose samples were already taken, in micro-batches of half the size. `failed` is the
  // allocation that failed, if it is known. Throws Error on every rank if they cannot be halved.
  void HalveMicroBatches(int64_t step, const std::optional<FailedAllocation>& failed);
  // Begins again with `step`, whose samples were already taken.
  void BeginAgain(int64_t step);

  const TrainingData& data() const { return data_; }
  const Preprocessing& preprocessing() const { return preprocessing_; }
  config::Precision precision() const { return precision_; }
  Model& model() { return *model_; }
  Step& step() { return *step_; }
  Input& input() { return *input_; }
  DataWait& data_wait() { return data_wait_; }
  const LoaderOptions& loader_options() const { return loader_options_; }
  // The number of micro-batches of a step. It is part of a run's state.
  int64_t& accumulation() { return accumulation_; }
  int64_t accumulation() const { return accumulation_; }
  const std::optional<MicroBatchChosen>& chosen() const { return micro_batches_->chosen(); }
  int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  int64_t max_micro_batch() const { return sampler_.max_micro_batch(); }
  // Returns the epoch, counted from 1, to which step `steps_done`, counted from 1, belongs.
  int64_t EpochOf(int64_t steps_done) const { return 1 + (steps_done - 1) / steps_per_epoch(); }

  // Returns what is foretold of the memory of this rank's GPU. Draws no random numbers.
  std::optional<MemoryReport> ForetoldMemory();

 private:
  void SeekTo(int64_t step);

  const config::Config& config_;
  const World& world_;
  RunEvents& events_;
  const config::Precision precision_;
  const TrainingData data_;
  const Models& models_;
  const Preprocessing preprocessing_;
  const std::shared_ptr<Model> model_;
  std::unique_ptr<Foreteller> foreteller_;  // made when it is needed
  std::optional<MicroBatchChoice> micro_batches_;
  std::optional<Step> step_;
  int64_t accumulation_;
  Sampler sampler_;
  const LoaderOptions loader_options_;
  std::optional<Input> input_;
  DataWait data_wait_;
};

// Opens the data of `config`, completes it with what they say, and makes a Fit of it in `fit`. Every rank must call it.
// Throws Error on every rank.
void MakeFit(std::optional<Fit>& fit, config::Config& config, const Extensions& extensions,
             const World& world, RunEvents& events);

}  // namespace lockstep
