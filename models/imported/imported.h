// Imported: a model of PyTorch's that lockstep.export has written to a file (python/FORMAT.md). No Python runs in
// training.
//
// The file has the graph of ATen operations that the module calls in training, and the one of evaluation. Lockstep
// calls these operations through LibTorch's dispatcher, under its own autograd and autocast (exported_graph.h). So the
// model has the module's names, its numbers are those of eager mode, and everything that Lockstep does with a built-in
// model it does with this one: gradients that are reduced while backward runs, CUDA graphs, 16 bits, micro-batches of
// any size.
//
// what can fail -> what the caller sees -> the test that shows it (tests/imported_test.py)
//   a file that is no .lsm, is damaged, or is of a newer version -> Error (kUsage, kCheckpoint) -> test_wrong_files
//   samples that the model does not take -> Error (kUsage) -> test_wrong_samples
//   targets that its own loss does not take -> Error (kUsage) -> test_a_loss_of_its_own
//   an operation that fails -> Error (kUsage) that names it, its module and the line of the user's code
//     -> test_an_operation_that_fails
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/imported/exported_graph.h"
#include "models/model.h"

namespace lockstep {

class Imported : public Model {
 public:
  // Throws Error (kUsage, kCheckpoint) if the file cannot be read or does not take such samples.
  explicit Imported(const ModelSpec& spec);

  // `input` as in Model, or empty if ranks share the statistics of norms. For a model of several inputs it is
  // [count, inputs, tokens]: input i is input[:, i].
  at::Tensor Forward(const at::Tensor& input) override;

  // The loss that the file has, or that of the task. The mean that a loss may return counts for each sample.
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;

  // Leaves out the buffers that the module does not save either, and the constants of the graphs.
  std::vector<NamedTensor> State() const override;
  std::vector<std::string> HeadPrefixes() const override { return head_; }
  std::vector<at::Tensor> ConvolutionWeights(bool rounds) const override;
  bool SharesStatistics() const override { return training_->batch_norms() > 0; }

 private:
  at::Tensor OutputOf(const at::Tensor& input, bool has_samples) const;

  std::string path_;
  Task task_;
  bool tokens_;
  int64_t classes_;
  std::vector<at::ScalarType> inputs_;  // the type of each
  std::vector<std::string> head_;
  std::set<std::string> unsaved_;  // buffers: some of the module's own, and the graphs' constants
  std::unique_ptr<ops::NormRanks> ranks_;  // null: norms have the statistics of this rank
  std::optional<ExportedGraph> training_, evaluation_, loss_;
};

}  // namespace lockstep
