// Computes gradients that can be differentiated again. The backward of an operation uses these functions, because its
// kernels cannot be differentiated.
#pragma once

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::ops {

// Returns whether the backward that calls this function must return gradients that can be differentiated again. This is
// so if torch::autograd::grad() runs with create_graph. GradientsOfTwin() computes such gradients.
inline bool IsDifferentiatedAgain() { return at::GradMode::is_enabled(); }

// Returns a tensor of zeros. In GradientsOfTwin() this tensor takes the place of an input that forward did not keep,
// because no gradient depends on the input's values. The tensor has the shape of `like`, except that its size in
// `dimension` is `size`.
inline at::Tensor InPlaceOfInput(const at::Tensor& like, int64_t dimension, int64_t size) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.at(at::maybe_wrap_dim(dimension, like.dim())) = size;
  return at::zeros(sizes, like.options()).requires_grad_();
}

// Returns the gradients of twin(inputs) for each of `inputs`; a gradient is undefined if its input requires none.
// `inputs` are the operation's inputs as autograd saved them. `twin` computes the operation with plain ATen calls, and
// its result has the shape and type of `dy`.
inline std::vector<at::Tensor> GradientsOfTwin(
    const std::vector<at::Tensor>& inputs, const at::Tensor& dy,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& twin) {
  // Each input is replaced by a view of it, because input a may have been computed from input b. Without the views, the
  // gradient of b would include the path through a. Autograd adds this path itself after this backward.
  std::vector<at::Tensor> own = inputs;
  std::vector<at::Tensor> wanted;
  for (at::Tensor& input : own) {
    if (!input.defined() || !input.requires_grad()) continue;
    input = input.view_as(input);
    wanted.push_back(input);
  }
  std::vector<at::Tensor> found =
      torch::autograd::grad({twin(own)}, wanted, {dy}, /*retain_graph=*/true,
                            /*create_graph=*/true);
  std::vector<at::Tensor> gradients(inputs.size());
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].defined() && inputs[i].requires_grad()) gradients[i] = found[next++];
  }
  return gradients;
}

}  // namespace lockstep::ops
