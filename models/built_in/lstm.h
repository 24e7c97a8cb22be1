// An LSTM classifier (Hochreiter and Schmidhuber 1997).
//
// Parameters are named as those of a PyTorch model with
//   rnn = nn.LSTM(features, hidden, layers, batch_first=True)
//   out = nn.Linear(hidden, classes)
// whose output is out(rnn(x)[0][:, -1]). The parameters have the same initial distribution as in PyTorch.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <string>
#include <vector>

#include "models/model.h"

namespace lockstep {

class Lstm : public Model {
 public:
  // Throws Error (kUsage) if the inputs cannot be divided into time steps.
  explicit Lstm(const ModelSpec& spec);

  at::Tensor Forward(const at::Tensor& input) override;
  std::vector<std::string> HeadPrefixes() const override { return {"out."}; }

 private:
  int64_t steps_;
  int64_t features_;
  torch::nn::LSTM rnn_{nullptr};
  torch::nn::Linear out_{nullptr};
};

}  // namespace lockstep
