#include "models/built_in/lstm.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/tensor/range.h"

namespace lockstep {

Lstm::Lstm(const ModelSpec& spec) {
  spec.RequireNumbers();
  const config::Lstm& config = spec.config.lstm();
  const std::vector<int64_t>& shape = spec.input_shape;
  const int64_t numbers = c10::multiply_integers(shape);
  // By default each row of an image is a time step. The rows of the first channel come first, then those of the second
  // channel, and so on.
  steps_ = config.steps() > 0 ? config.steps() : shape.size() > 1 ? numbers / shape.back() : 0;
  if (steps_ == 0 || numbers % steps_ != 0) {
    throw UsageError(
        "model lstm: inputs of shape [{}] cannot be cut into {} time steps: set "
        "model.lstm.steps to a divisor of {}",
        fmt::join(shape, ", "), steps_, numbers);
  }
  features_ = numbers / steps_;
  rnn_ = register_module("rnn", torch::nn::LSTM(torch::nn::LSTMOptions(features_, config.hidden())
                                                    .num_layers(config.layers())
                                                    .batch_first(true)));
  out_ = register_module("out", torch::nn::Linear(config.hidden(), spec.classes));
}

at::Tensor Lstm::Forward(const at::Tensor& input) {
  std::optional<Range> range("rnn");
  const at::Tensor outputs =
      std::get<0>(rnn_->forward(input.reshape({input.size(0), steps_, features_})));
  range.reset();
  range.emplace("out");
  return at::linear(outputs.select(1, -1), out_->weight, out_->bias);
}

}  // namespace lockstep
