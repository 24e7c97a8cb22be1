// Imported: a PyTorch model that lockstep.export has written to a file (python/FORMAT.md). Training runs no Python.
//
// The file holds two graphs of ATen operations. One graph has the operations that the module calls in training, and the
// other has the operations that it calls in evaluation. Lockstep calls the operations through LibTorch's dispatcher,
// under its own autograd and autocast (exported_graph.h). The parameters have the module's names, the results are those
// of eager mode. Like a built-in model, the model supports gradient reduction during backward, CUDA graphs and 16-bit
// training. The file gives the smallest and the largest micro-batch that each graph takes.
//
// what can fail -> what the caller sees -> the test that shows it (tests/imported_test.py)
//   a file that is no .lsm file, is damaged, or has a newer version -> Error (kUsage, kCheckpoint) -> test_wrong_files
//   samples that the model does not take -> Error (kUsage) -> test_wrong_samples
//   targets that the model's own loss does not take -> Error (kUsage) -> test_a_loss_of_its_own
//   an operation that fails -> Error (kUsage) that names the operation, its module and the line of the user's code
//     -> test_an_operation_that_fails
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/imported/exported_graph.h"
#include "models/model.h"

namespace lockstep {

class Imported : public Model {
 public:
  // Throws Error (kUsage, kCheckpoint) if the file cannot be read, or if the model does not take the samples of `spec`.
  explicit Imported(const ModelSpec& spec);
  ~Imported() override;
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;

  // Returns the output of the model. `input` is as Model::Forward() describes; on a rank without samples it may be
  // empty if the ranks share the statistics of BatchNorm. A model of several inputs gets [count, inputs, tokens], and
  // its input i is input[:, i].
  at::Tensor Forward(const at::Tensor& input) override;

  // Returns the sum of the losses of the file's loss function, or, if the file has none, of the task's default loss. If
  // the file's loss function returns a mean, the mean is multiplied by the number of targets.
  at::Tensor LossSum(const at::Tensor& output, const at::Tensor& target) override;

  // Returns the parameters, and the buffers except the module's non-persistent ones and the graphs' constants.
  std::vector<NamedTensor> State() const override;
  std::map<std::string, uint64_t> Graph() const override { return graph_; }
  std::vector<std::string> HeadPrefixes() const override { return head_; }
  std::vector<at::Tensor> ConvolutionWeights(bool rounds) const override;
  bool SharesStatistics() const override { return training_->batch_norms() > 0; }
  bool GeneratesKernels() const override { return true; }

 private:
  at::Tensor OutputOf(const at::Tensor& input, bool has_samples) const;

  std::string path_;
  Task task_;
  bool tokens_;
  int64_t classes_;
  std::vector<at::ScalarType> inputs_;  // the dtype of each input
  std::vector<std::string> head_;
  std::map<std::string, uint64_t> graph_;
  std::set<std::string> unsaved_;  // names of non-persistent buffers and of the graphs' constants
  std::unique_ptr<ops::NormRanks> ranks_;  // null: BatchNorm uses the statistics of this rank
  std::optional<ExportedGraph> training_, evaluation_, loss_;
};

}  // namespace lockstep
