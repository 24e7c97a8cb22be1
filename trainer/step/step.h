// Step: one optimizer step on this rank, from micro-batches on the device to updated weights.
//
// Promise: a step gives the same result eagerly or as a CUDA graph, and never waits for the device. The result is the
// same as if the whole global batch were computed at once: each micro-batch's loss is a sum, divided by the number of
// targets in the global batch.
//
// Invariants:
//   1. The first step runs eagerly. In this step the ranks agree on errors, and the reducer settles the layout of its
//      buckets unless Resume() has already done so. A batch shape is the number of samples in the global batch, from
//      which the number of samples of each rank follows. When a batch shape first occurs, the step runs eagerly, which
//      sets up everything that a capture needs. From the second time on the step runs as a graph. Therefore either all
//      ranks replay a graph in a step, or no rank does.
//   2. A step has this order: gradients and loss of the micro-batches, sums over the ranks while the last backward
//      runs, ops::DecideStep(), updates. If DecideStep() needs the gradient's norm, it runs after all sums are
//      complete. Otherwise the first updates run while the last sums are still being reduced.
//   3. A graph reads its micro-batches from the step's own memory, into which Run() copies them.
//   4. Memory for a step's activations, and for a single rank's gradients, can run out only while an eager step is
//      being queued, because a graph owns its memory from its capture on. The rank where memory runs out still takes
//      part in the step's collectives. Before the update all ranks agree to discard the step, and restore parameters,
//      buffers and random numbers to their values before the step.
//
// what can fail -> what the caller sees -> the test that shows it
//   the model throws in the first step -> Error on every rank -> tests/fault_test.py,
//     test_a_rank_that_throws
//   the step cannot be captured -> it runs eagerly on every rank; why_no_graph() says why
//     -> tests/graph_test.py
//   memory runs out on a rank -> false from Run() on every rank -> tests/memory_test.py
//   loss or gradient are not finite -> figures() (trainer/ops/update/step_values.h) -> tests/precision_test.py
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "ckpt/state_tree.h"
#include "comm/reduce/reducer.h"
#include "data/feed/device_feed.h"
#include "observe/peak_memory.h"
#include "observe/step_clock.h"
#include "trainer/config/schema/config.pb.h"
#include "trainer/models/model.h"
#include "trainer/ops/common/rounded_weight.h"
#include "trainer/ops/update/step_decision.h"
#include "trainer/ops/update/step_values.h"
#include "trainer/step/optimizer.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/step_graph.h"
#include "trainer/step/world.h"

namespace lockstep {

// Where a step gets its micro-batches from: DeviceFeed, mostly.
struct MicroBatches {
  std::function<DeviceBatch()> next;
  std::function<void()> prefetch;
};

// What a rank asks all for.
struct Requests {
  int64_t saves = 0;  // checkpoints so far, counted by rank 0; the others leave it
  bool stop = false;
  bool interrupt = false;

  bool operator==(const Requests&) const = default;
};

class Step {
 public:
  // `config`, `model`, `preprocessing` and `world` must outlive it. Every rank must call it.
  Step(const config::Config& config, Model& model, const Preprocessing& preprocessing,
       const SampleSpec& spec, int64_t max_micro_batch, const World& world);

  // Runs the next step. False: there was not enough memory for it, and nothing has changed; whoever calls
  // gives it smaller micro-batches then (SetMicroBatches). Every rank must call it, and gets the same.
  // Throws Error.
  bool Run(double lr, const MicroBatches& batches);

  // From the next step on this rank asks for that: figures() says what all of them do, the same on all.
  void Ask(const Requests& requests);

  // From now on a step is `accumulation` micro-batches of at most `max_micro_batch` samples.
  void SetMicroBatches(int accumulation, int64_t max_micro_batch);

  // Goes on from the parameters and buffers that the model has now, instead of beginning: Run() has not been
  // called. `order`: the buckets' of the job before. Every rank must call it. Throws Error.
  void Resume(const std::vector<int64_t>& order);

  // What the next step depends on, without parameters and buffers: the optimizer's part and one of this
  // class's own. Once a step has run or Resume() was called.
  void AddTo(StateTree& state);
  // What was restored is made to fit this job's precision and rules. Once AddTo()'s were.
  void AfterRestore();
  // In it: the order that Resume() takes.
  static constexpr const char* kBucketOrder = "step.bucket_order";

  // float64 [ops::kStepFigures] on the device: of the last step.
  const at::Tensor& figures() const { return figures_; }

  // Parameters that are trained, each once, and buffers.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

  // Makes this step's and every rank's parameters whole (sharded updates are exchanged while the next
  // step begins).
  void WaitForParameters() { reducer_->WaitForParameters(); }

  // With ema_decay: exchanges parameters and their averages, on every rank.
  void SwapAverages();

  // Why steps run eagerly although a graph was asked for; empty: they do not.
  const std::string& why_no_graph() const { return why_no_graph_; }

  // From now on steps are timed with `clock`; null: not.
  void SetClock(StepClock* clock) { clock_ = clock; }

  // Seconds that this thread has scaled and augmented samples so far; 0 on a GPU, which does so itself.
  double preprocessing_s() const { return preprocessing_s_; }

  // Of the last step that ran eagerly.
  const PeakMemory& peak_memory() const { return peak_memory_; }

 private:
  using NextMicroBatch = std::function<DeviceBatch(int micro)>;

  bool RunEagerly(double lr, const MicroBatches& batches);
  bool RunGraph(double lr, int64_t key, const MicroBatches& batches, DeviceBatch first);
  void SetUpGraphs();
  void MakeOptimizer();
  void BeginStep();
  void AccumulateGradients(const NextMicroBatch& micro_batch);
  at::Tensor LossSumOf(const DeviceBatch& batch, const at::Tensor& gradient);
  void AddMicroBatch(const DeviceBatch& batch, bool last);
  void Update();
  void SetShare(int64_t global_count);

  // Waits for other ranks.
  template <typename Wait>
  void Exchange(const Wait& wait) {
    Mark(Phase::kExchange);
    const bool counts = world_.size() > 1;
    if (counts) ops::BeginWait(figures_);
    wait();
    if (counts) ops::EndWait(figures_);
  }

  void Mark(Phase phase) {
    if (clock_ != nullptr) clock_->Mark(phase);
    peak_memory_.Mark(phase);
  }

  const config::Config& config_;
  Model& model_;
  const Preprocessing& preprocessing_;
  AugmentOptions augment_;
  SampleSpec spec_;
  int accumulation_;
  int64_t max_micro_batch_;
  const World& world_;
  config::Precision precision_;
  ops::StepRules rules_;
  bool norm_decides_;  // whether the update depends on the gradient's norm

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::optional<Reducer> reducer_;
  std::optional<Optimizer> optimizer_;  // from the first step's gradients on
  ops::WeightCopies copies_;            // of those that the first step rounds
  at::Tensor values_;                   // float32 [ops::kStepValues]
  at::Tensor figures_;
  at::Tensor requests_;  // float32 [ops::kStepSums]: asked_, without a loss
  Requests asked_;
  at::Tensor share_;  // float32: 1 / targets of the global batch
  int64_t share_of_ = 0;

  bool agreed_ = false;  // on errors, in the first step
  int64_t scales_loss_;  // rules_.scales_loss, or the saved job's

  std::optional<StepGraphs> graphs_;
  std::string why_no_graph_;
  std::vector<int64_t> seen_keys_;  // that ran eagerly, and may be captured
  // A graph's micro-batches.
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    at::Tensor draws;
  };
  std::vector<Slot> slots_;
  StepClock* clock_ = nullptr;
  PeakMemory peak_memory_;
  double preprocessing_s_ = 0;
};

}  // namespace lockstep
