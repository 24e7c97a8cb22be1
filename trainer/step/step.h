// Step: makes optimizer steps on this rank, from micro-batches on the device to updated weights.
//
// Promise: a step gives the same result whether it runs eagerly or as a CUDA graph. In the steps after the first the
// host does not wait for the device, except in a capture and for histograms. The result is the same as if the whole
// global batch were computed at once: each micro-batch's loss is the sum of its targets' losses, divided by the number
// of targets in the global batch. If targets have weights (loss.class_weight), the sum of the weights in the global
// batch is known only after all micro-batches of all ranks. The weights are therefore summed over the ranks together
// with the loss, and ops::DecideStep() divides the loss and the gradients by the sum.
//
// Invariants:
//   1. The first step runs eagerly. In the first step the ranks agree on errors, and the reducer settles the layout of
//      its buckets unless Resume() has already done so. A batch shape is the number of samples in the global batch,
//      from which the number of samples of each rank follows. A step whose batch shape occurs for the first time runs
//      eagerly, and thereby sets up everything that a capture needs. Later steps of the same batch shape run as a CUDA
//      graph. Therefore either all ranks replay a graph in a step, or no rank does.
//   2. A step has this order: gradients and loss of the micro-batches, sums of the gradients over the ranks while the
//      last micro-batch's backward runs, ops::DecideStep(), updates. If DecideStep() needs the gradient's norm,
//      DecideStep() runs after all gradients were summed. Otherwise the first updates run while the last gradients are
//      still being summed.
//   3. A graph reads its micro-batches from tensors of the Step, into which Run() copies the micro-batches.
//   4. Memory for a step's activations (and, if there is only one rank, for the gradients) can run out only while an
//      eager step is being queued, because a graph owns its memory from its capture on. The rank where memory runs out
//      still takes part in the step's collectives. All ranks then agree, before the update, to discard the step, and
//      restore parameters, buffers and random numbers to their values before the step.
//
// what can fail -> what the caller sees -> the test that shows it
//   the model throws in the first step -> Error on every rank -> tests/fault_test.py,
//     test_a_rank_that_throws
//   the step cannot be captured -> the step runs eagerly on every rank; why_no_graph() says why
//     -> tests/graph_test.py
//   memory runs out on a rank -> false from Run() on every rank -> tests/memory_test.py
//   memory runs out because CUDA graphs hold a part of it, as in an epoch's short last batch -> false from Run(),
//     and holds_graphs() is true; without the graphs the step fits, and the graphs of both batch shapes then share
//     their memory
//     -> tests/memory_test.py, test_graphs_give_way_to_another_step
//   memory runs out in a step with histograms -> false from Run(), and DropHistograms() returns true
//     -> tests/sinks_test.py, test_histograms_give_way_to_the_step
//   loss or gradient are not finite -> figures() says so (ops/update/step_values.h) -> tests/precision_test.py
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/named_tensor.h"
#include "base/tensor/range.h"
#include "ckpt/state_tree.h"
#include "comm/reduce/reducer.h"
#include "config/schema/config.pb.h"
#include "data/feed/micro_batches.h"
#include "models/model.h"
#include "observe/memory_watch.h"
#include "observe/profile/trace_places.h"
#include "observe/run_event.h"
#include "observe/step_clock.h"
#include "ops/common/rounded_weight.h"
#include "ops/update/step_decision.h"
#include "ops/update/step_values.h"
#include "trainer/step/optimizer.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/step_graph.h"
#include "trainer/step/world.h"

namespace lockstep {

// The requests of one rank, which all ranks obey.
struct Requests {
  // Only rank 0 counts saves and profiled_steps; both are 0 on other ranks.
  int64_t saves = 0;           // how many checkpoints were asked for so far
  int64_t profiled_steps = 0;  // how many steps were asked to be profiled so far
  bool stop = false;           // whether the run should stop
  bool interrupt = false;      // whether the run should stop because the user ended it

  bool operator==(const Requests&) const = default;
};

class Step {
 public:
  // Keeps references to `config`, `model`, `preprocessing` and `world`. Every rank must construct a Step at the same
  // time.
  Step(const config::Config& config, Model& model, const Preprocessing& preprocessing,
       const SampleSpec& spec, int64_t max_micro_batch, const World& world);

  // Makes the next step with micro-batches that it takes from `batches`. Returns false if the step did not fit in
  // memory; weights and state have then not changed, and the caller can set smaller micro-batches (SetMicroBatches())
  // and call Run() again. Every rank must call it, and every rank gets the same result. Throws Error.
  bool Run(double lr, MicroBatches& batches);

  // Sets the requests of this rank for the next step and all steps after it. The step's figures() hold the sums of all
  // ranks' requests, which are the same on every rank.
  void Ask(const Requests& requests);

  // Makes the following steps have `accumulation` micro-batches of at most `max_micro_batch` samples on this rank.
  // Releases the memory of the CUDA graphs and resets memory().Most().
  void SetMicroBatches(int accumulation, int64_t max_micro_batch);

  // Puts the parameters into gradient buckets and constructs the optimizer, so that a run continues from the parameters
  // and buffers that the model has. Call it before the first Run(). `order` is the order of the parameters in the
  // gradient buckets (Reducer::order()) of the job that saved the state. Every rank must call it. Throws Error.
  void Resume(const std::vector<int64_t>& order);

  // Adds to `state` everything on which the next step depends, except parameters and buffers: the state of the
  // optimizer and of this object. Call it only after a Run() or Resume().
  void AddTo(StateTree& state);
  // Adapts the restored state to the precision and the rules of this job. Call it after the entries of AddTo() were
  // restored.
  void AfterRestore();
  // The name of the entry of AddTo() that holds the order for Resume().
  static constexpr const char* kBucketOrder = "step.bucket_order";

  // Returns the figures of the last step (ops::StepFigure): float64 [ops::kStepFigures] on the device.
  const at::Tensor& figures() const { return figures_; }

  // Returns the trained parameters, each of them once.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  // Returns the number of elements of all trained parameters.
  int64_t ParameterCount() const;
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

  // Waits until this rank has all updated parameters. (With a sharded optimizer the ranks may still be exchanging
  // updated shards when Run() returns.)
  void WaitForParameters() { reducer_->WaitForParameters(); }

  // Swaps the parameters with their averages, if the config has ema_decay. Every rank must call it.
  void SwapAverages();

  // Returns the nodes of the CUDA graphs that steps run, by the names of the ranges in which the graphs are replayed.
  NodesOfGraphs nodes_of_graphs() const { return graphs_ ? graphs_->nodes() : NodesOfGraphs(); }

  // Returns whether CUDA graphs hold memory, which SetMicroBatches() would release. Every rank gets the same answer.
  bool holds_graphs() const { return graphs_ && !graphs_->empty(); }

  // Returns why steps run eagerly although the config asks for a CUDA graph; empty if there is no such reason.
  const std::string& why_no_graph() const { return why_no_graph_; }

  // Makes the next Run(), which makes step `step`, take histograms of the parameters before the update, and of the
  // gradients (trainer/step/histograms.h). That step runs eagerly. Every rank must call AskForHistograms() before the
  // same Run(). Before the first Run() it does nothing, because the operations of the first step are counted, and the
  // count must not include the work for histograms. After DropHistograms() has returned true, it does nothing either.
  void AskForHistograms(int64_t step) {
    if (agreed_ && !dropped_histograms_) histograms_of_ = step;
  }
  // Returns, on rank 0, the histograms that the last Run() has taken; nothing if it took none, or if they were already
  // returned.
  std::optional<Histograms> TakeHistograms() { return std::exchange(histograms_, std::nullopt); }
  // Makes all further steps take no histograms and returns true, if the last Run() returned false and was to take
  // histograms. Otherwise returns false. Every rank gets the same answer.
  bool DropHistograms();

  // Makes `clock` measure the phases of the following steps. If `clock` is null, the phases are not measured.
  void SetClock(StepClock* clock) { clock_ = clock; }

  // Returns for how many seconds Run() has scaled and augmented samples on the CPU so far. Returns 0 if the device is a
  // GPU, because kernels then do this work.
  double preprocessing_s() const { return preprocessing_s_; }

  // Returns the object that watches the memory of a Run() if a caller asks for it (MemoryWatch::During()).
  MemoryWatch& memory() { return memory_; }
  // Returns the tensors that stay allocated between two calls of Run(), each with its owner (base/memory_scope.h).
  std::vector<OwnedTensor> HeldTensors();
  // has_captured() returns whether the last Run() has captured a graph. lacked_memory() returns whether this rank ran
  // out of memory in the last Run().
  bool has_captured() const { return has_captured_; }
  bool lacked_memory() const { return lacked_memory_; }

 private:
  bool RunEagerly(double lr, MicroBatches& batches);
  bool RunGraph(double lr, int64_t key, MicroBatches& batches);
  void SetUpGraphs();
  void MakeOptimizer();
  void BeginStep();
  // Adds up the gradients and losses of a step's micro-batches. Returns the number of samples in the global batch.
  int64_t AccumulateGradients(MicroBatches& batches);
  at::Tensor Forward(const at::Tensor& input);
  at::Tensor LossSumOf(const DeviceBatch& batch, const at::Tensor& gradient);
  void AddMicroBatch(const DeviceBatch& batch, bool last);
  void Update();
  void TakeHistogramsNow();
  void SetShare(int64_t global_count);

  // Calls `wait`, which waits for other ranks, in the phase Phase::kExchange. With several ranks, adds the waiting time
  // to figures().
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
    memory_.Mark(phase);
    // reset() ends the range of the previous phase. The phase kRest gets no range here, because Run() opens one range
    // for the whole step.
    phase_range_.reset();
    if (phase != Phase::kRest) phase_range_.emplace(std::string(NameOf(phase)), Range::Of::kStep);
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
  bool norm_decides_;  // whether DecideStep() gets the gradient's norm

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::optional<Reducer> reducer_;
  std::optional<Optimizer> optimizer_;  // set after the first backward, or by Resume()
  ops::WeightCopies copies_;            // 16-bit copies of the weights that the first step rounds
  at::Tensor values_;                   // float32 [ops::kStepValues]
  at::Tensor figures_;
  // float32 [ops::kStepSums], indexed by ops::StepSum: the requests in asked_. All other elements are 0.
  at::Tensor requests_;
  Requests asked_;        // this rank's requests, as requests_ holds them
  at::Tensor share_;      // float32: 1 / number of targets in the global batch
  int64_t share_of_ = 0;  // the number of samples of the global batch for which share_ was set

  bool agreed_ = false;  // whether the first step, where ranks agree on errors, was made
  // rules_.scales_loss; between a restore and AfterRestore(): the value of the job that saved the state.
  int64_t scales_loss_;

  std::optional<StepGraphs> graphs_;
  std::string why_no_graph_;
  std::vector<int64_t> seen_keys_;  // batch shapes that ran eagerly, so that they may be captured
  // The tensors of one of the micro-batches that graphs read.
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    at::Tensor draws;
  };
  std::vector<Slot> slots_;
  int64_t histograms_of_ = 0;  // the step that takes histograms; 0: none
  std::optional<Histograms> histograms_;
  bool dropped_histograms_ = false;
  StepClock* clock_ = nullptr;
  MemoryWatch memory_;
  bool has_captured_ = false;
  bool lacked_memory_ = false;
  std::optional<Range> phase_range_;
  double preprocessing_s_ = 0;
};

}  // namespace lockstep
