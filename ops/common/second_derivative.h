// Gradients that have gradients themselves, for the backward of an operation whose kernels have none.
#pragma once

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::ops {

// Whether the caller, which is a backward, must return gradients that can be differentiated again, as
// torch::autograd::grad() with create_graph asks for. GradientsOfTwin() computes them.
inline bool IsDifferentiatedAgain() { return at::GradMode::is_enabled(); }

// Returns what stands for an input that backward did not keep, because its gradient does not depend on it: zeros with
// the shape of `like`, but `size` in `dimension`.
inline at::Tensor InPlaceOfInput(const at::Tensor& like, int64_t dimension, int64_t size) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes.at(at::maybe_wrap_dim(dimension, like.dim())) = size;
  return at::zeros(sizes, like.options()).requires_grad_();
}

// Returns the gradients of twin(inputs) for each of `inputs`, undefined for those that require none. `inputs` are the
// operation's own, as autograd saved them; `twin` computes the operation from plain ATen calls, whose result has the
// shape and type of `dy`.
inline std::vector<at::Tensor> GradientsOfTwin(
    const std::vector<at::Tensor>& inputs, const at::Tensor& dy,
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& twin) {
  // Views, because one input may arise from another: what goes through the other is autograd's to follow.
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
