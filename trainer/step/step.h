// Step: one optimizer step on this rank, from micro-batches on the device to updated weights.
//
// Promise: a step gives the same result eagerly or as a CUDA graph, and never waits for the device. The result is the
// same as if the whole global batch were computed at once: each micro-batch's loss is a sum, divided by the number of
// targets in the global batch. Where targets have weights (loss.class_weight), the sum of the weights of the global
// batch is known only after all micro-batches of all ranks. It is therefore summed over the ranks together with the
// loss, and ops::DecideStep() divides the loss and the gradients by this sum.
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
//   memory runs out because CUDA graphs hold a part of it, as in an epoch's short last batch -> false from Run(), and
//     holds_graphs() is true; without the graphs the same step runs, and the graphs of both batch shapes then share
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

// The requests of one rank to all ranks.
struct Requests {
  // Only rank 0 counts these two; they are 0 on other ranks.
  int64_t saves = 0;           // how many checkpoints were asked for so far
  int64_t profiled_steps = 0;  // how many steps were asked to be profiled so far
  bool stop = false;
  bool interrupt = false;

  bool operator==(const Requests&) const = default;
};

class Step {
 public:
  // `config`, `model`, `preprocessing` and `world` must outlive the Step. Every rank must call it.
  Step(const config::Config& config, Model& model, const Preprocessing& preprocessing,
       const SampleSpec& spec, int64_t max_micro_batch, const World& world);

  // Runs the next step. Returns false if there was not enough memory for the step; nothing has then changed, and the
  // caller can set smaller micro-batches (SetMicroBatches) and call Run() again. Every rank must call it, and every
  // rank gets the same result. Throws Error.
  bool Run(double lr, MicroBatches& batches);

  // Sets the requests of this rank, beginning with the next step. figures() holds the sums of all ranks' requests,
  // which are the same on every rank.
  void Ask(const Requests& requests);

  // From now on a step has `accumulation` micro-batches of at most `max_micro_batch` samples. This releases the memory
  // of the CUDA graphs and resets memory().Most().
  void SetMicroBatches(int accumulation, int64_t max_micro_batch);

  // Continues from the parameters and buffers that the model has now. Call it before the first Run(). `order` is the
  // order of the parameters in the gradient buckets (Reducer::order()) of the job that saved the state. Every rank must
  // call it. Throws Error.
  void Resume(const std::vector<int64_t>& order);

  // Adds the state on which the next step depends, except parameters and buffers: the optimizer's state and the state
  // of this class. Call it only after a Run() or Resume().
  void AddTo(StateTree& state);
  // Adapts the restored state to the precision and the rules of this job. Call it after the entries of AddTo() were
  // restored.
  void AfterRestore();
  // The name of the entry of AddTo() that holds the order for Resume().
  static constexpr const char* kBucketOrder = "step.bucket_order";

  // The figures of the last step: float64 [ops::kStepFigures] on the device.
  const at::Tensor& figures() const { return figures_; }

  // The trained parameters, each listed once.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  // Returns how many numbers are trained.
  int64_t ParameterCount() const;
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

  // Waits until this rank has all updated parameters. (With a sharded optimizer the ranks still exchange updated shards
  // while the next step begins.)
  void WaitForParameters() { reducer_->WaitForParameters(); }

  // With ema_decay, exchanges the parameters and their averages. Every rank must call it.
  void SwapAverages();

  // Returns the nodes of the CUDA graphs that steps run, by the names of their ranges.
  NodesOfGraphs nodes_of_graphs() const { return graphs_ ? graphs_->nodes() : NodesOfGraphs(); }

  // Whether CUDA graphs hold memory, which SetMicroBatches() would release. The answer is the same on every rank.
  bool holds_graphs() const { return graphs_ && !graphs_->empty(); }

  // The reason why steps run eagerly although the config asks for a graph; empty if there is none.
  const std::string& why_no_graph() const { return why_no_graph_; }

  // Makes the next Run() take histograms of the parameters, before its update, and of their gradients
  // (trainer/step/histograms.h). That step, `step`, runs eagerly. Every rank must call it before the same Run(). It
  // does nothing before the first Run(), because the operations of that step are counted, nor after DropHistograms()
  // has returned true.
  void AskForHistograms(int64_t step) {
    if (agreed_ && !dropped_histograms_) histograms_of_ = step;
  }
  // Returns, on rank 0, the histograms that the last Run() has taken; nothing if it took none.
  std::optional<Histograms> TakeHistograms() { return std::exchange(histograms_, std::nullopt); }
  // If the last Run() returned false and was to take histograms, returns true, and no further step takes histograms.
  // Every rank gets the same answer.
  bool DropHistograms();

  // From now on `clock` measures the phases of each step. If it is null, they are not measured.
  void SetClock(StepClock* clock) { clock_ = clock; }

  // Returns the seconds for which this thread has scaled and augmented samples so far. It is 0 if the device is a GPU,
  // because kernels then do this work.
  double preprocessing_s() const { return preprocessing_s_; }

  // Watches the memory of a Run(), if a caller asks for it.
  MemoryWatch& memory() { return memory_; }
  // Returns the tensors that exist between two calls of Run(), each with the purpose of its memory.
  std::vector<OwnedTensor> HeldTensors();
  // Whether the last Run() has captured a graph, and whether this rank lacked memory in it.
  bool has_captured() const { return has_captured_; }
  bool lacked_memory() const { return lacked_memory_; }

 private:
  bool RunEagerly(double lr, MicroBatches& batches);
  bool RunGraph(double lr, int64_t key, MicroBatches& batches);
  void SetUpGraphs();
  void MakeOptimizer();
  void BeginStep();
  // Returns the number of samples in the global batch.
  int64_t AccumulateGradients(MicroBatches& batches);
  at::Tensor Forward(const at::Tensor& input);
  at::Tensor LossSumOf(const DeviceBatch& batch, const at::Tensor& gradient);
  void AddMicroBatch(const DeviceBatch& batch, bool last);
  void Update();
  void TakeHistogramsNow();
  void SetShare(int64_t global_count);

  // Calls `wait`, which waits for other ranks, as Phase::kExchange. With several ranks, the waiting time is added to
  // figures().
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
    // First ends the range of the previous phase. kRest gets no range here, because Run() opens one for the whole step.
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
  bool norm_decides_;  // whether the update depends on the gradient's norm

  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::optional<Reducer> reducer_;
  std::optional<Optimizer> optimizer_;  // set after the first backward, or by Resume()
  ops::WeightCopies copies_;            // copies of the weights that the first step rounds
  at::Tensor values_;                   // float32 [ops::kStepValues]
  at::Tensor figures_;
  at::Tensor requests_;  // float32 [ops::kStepSums]: the values of asked_; 0 for the loss
  Requests asked_;
  at::Tensor share_;  // float32: 1 / number of targets of the global batch
  int64_t share_of_ = 0;

  bool agreed_ = false;  // whether the ranks have agreed on errors, in the first step
  int64_t scales_loss_;  // rules_.scales_loss; before AfterRestore(), the restored value

  std::optional<StepGraphs> graphs_;
  std::string why_no_graph_;
  std::vector<int64_t> seen_keys_;  // batch shapes that ran eagerly, so they may be captured
  // The memory of one of the micro-batches that graphs read.
  struct Slot {
    at::Tensor input;
    at::Tensor target;
    at::Tensor draws;
  };
  std::vector<Slot> slots_;
  int64_t histograms_of_ = 0;  // the step of which to take histograms; 0: none
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
