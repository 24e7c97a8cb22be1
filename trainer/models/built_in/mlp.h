// A multi-layer perceptron: linear layers with ReLU between them. With mixed precision the values between the layers
// have 16 bits.
//
// Parameters are named as those of the PyTorch model
//   nn.Sequential(nn.Linear(features, h1), nn.BatchNorm1d(h1), nn.ReLU(), nn.Dropout(p), ...,
//                 nn.Linear(hn, classes))
// namely "0.weight", "0.bias", ... BatchNorm and Dropout are there only if the config sets them. The parameters have
// the same initial distribution as in PyTorch. The output is that model's, times output_scale and plus output_shift.
//
// what can fail -> what the caller sees -> the test that shows it (tests/new_test.py)
//   output_scale or output_shift without a value for each number, or for classes -> Error (kUsage)
//     -> test_scales_of_the_outputs_that_do_not_fit
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/models/batch_norm.h"
#include "trainer/models/model.h"

namespace lockstep {

class Mlp : public Model {
 public:
  explicit Mlp(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;
  std::vector<std::string> HeadPrefixes() const override { return {head_}; }

 private:
  struct Layer {
    std::string name;                 // of the module
    at::Tensor weight;                // [outputs, inputs]
    at::Tensor bias;                  // [outputs]
    std::shared_ptr<BatchNorm> norm;  // null: the layer has no norm
  };
  at::Tensor Scaled(const at::Tensor& outputs) const;

  std::vector<Layer> layers_;
  double dropout_;
  std::string head_;
  std::vector<double> scales_;  // of each output, or one for all
  std::vector<double> shifts_;  // likewise
};

}  // namespace lockstep
