// TorchScript: a model from a file that torch.jit.save wrote in Python, after torch.jit.script or torch.jit.trace.
//
// The model's parameters and buffers are those of the script, under the script's names. Training, saving and moving to
// a device act on the script's own tensors. LibTorch interprets the script operation by operation, like Python in eager
// mode, and gives the same results. A step with such a model can be captured in a CUDA graph.
//
// what can fail -> what the caller sees -> the test that shows it (tests/init_from_test.py)
//   a file that is not TorchScript -> Error (kUsage) with path and reason
//     -> test_a_file_that_is_no_torchscript
//   a script without parameters to train -> Error (kUsage) -> test_a_frozen_script
//   an output that is not a tensor, or has another shape -> Error (kUsage), in the first step
//     -> test_a_script_that_returns_something_else
//   an exception inside the script -> Error (kUsage) with its reason -> test_a_script_that_fails
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <map>
#include <string>

#include "models/model.h"

namespace lockstep {

class TorchScript : public Model {
 public:
  // Throws Error (kUsage) if the file cannot be loaded or the script cannot be trained.
  explicit TorchScript(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;
  void train(bool on) override;
  std::map<std::string, uint64_t> Graph() const override { return graph_; }
  std::vector<at::Tensor> ConvolutionWeights(bool rounds) const override;

 private:
  std::string path_;
  bool tokens_;
  int64_t classes_;
  torch::jit::Module script_;
  std::map<std::string, uint64_t> graph_;
};

}  // namespace lockstep
