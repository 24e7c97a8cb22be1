#include "ops/token/cross_entropy.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include "ops/common/launch_arguments.h"
#include "ops/token/cross_entropy_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

CrossEntropyShape ShapeOf(const at::Tensor& logits, int64_t classes, double label_smoothing) {
  TORCH_CHECK(0 < classes && classes <= logits.size(1) && logits.size(1) < int64_t{1} << 30,
              "cross-entropy: ", classes, " classes in ", logits.size(1), " columns");
  return {.rows = logits.size(0),
          .columns = logits.size(1),
          .classes = classes,
          .label_smoothing = static_cast<float>(label_smoothing)};
}

class FusedCrossEntropy : public torch::autograd::Function<FusedCrossEntropy> {
 public:
  static Variable forward(AutogradContext* context, const Variable& logits, const Variable& target,
                          int64_t classes, double label_smoothing) {
    const c10::DeviceGuard guard(logits.device());
    const at::TensorOptions options = logits.options().dtype(at::kFloat);
    const at::Tensor losses = at::empty({logits.size(0)}, options);
    const at::Tensor log_sums = at::empty({logits.size(0), 2}, options);
    Launch(logits, [&](cudaStream_t stream) {
      LaunchCrossEntropy(logits.const_data_ptr(), TypeOf(logits), target.const_data_ptr<int64_t>(),
                         losses.mutable_data_ptr<float>(),
                         reinterpret_cast<LogSum*>(log_sums.mutable_data_ptr<float>()),
                         ShapeOf(logits, classes, label_smoothing), stream);
    });
    context->save_for_backward({logits, target, log_sums});
    context->saved_data["classes"] = classes;
    context->saved_data["label_smoothing"] = label_smoothing;
    return losses.sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    // The tensor is detached, because the gradient that overwrites the logits must not be part of their autograd graph.
    const at::Tensor logits = saved[0].detach();
    const c10::DeviceGuard guard(logits.device());
    const at::Tensor gradient = gradients[0].to(at::kFloat);
    Launch(logits, [&](cudaStream_t stream) {
      LaunchCrossEntropyBackward(logits.mutable_data_ptr(), TypeOf(logits),
                                 saved[1].const_data_ptr<int64_t>(),
                                 reinterpret_cast<const LogSum*>(saved[2].const_data_ptr<float>()),
                                 gradient.const_data_ptr<float>(),
                                 ShapeOf(logits, context->saved_data["classes"].toInt(),
                                         context->saved_data["label_smoothing"].toDouble()),
                                 stream);
    });
    torch::autograd::impl::bump_version(logits);
    return {logits, {}, {}, {}};
  }
};

class CrossEntropyAndGradient : public torch::autograd::Function<CrossEntropyAndGradient> {
 public:
  static Variable forward(AutogradContext* context, const Variable& logits, const Variable& target,
                          const Variable& gradient, int64_t classes, double label_smoothing) {
    const c10::DeviceGuard guard(logits.device());
    const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
    // The tensor is detached, because the gradient that overwrites the logits must not be part of their autograd graph.
    const at::Tensor memory = logits.detach();
    Launch(memory, [&](cudaStream_t stream) {
      LaunchCrossEntropyAndGradient(
          memory.mutable_data_ptr(), TypeOf(memory), target.const_data_ptr<int64_t>(),
          gradient.const_data_ptr<float>(), losses.mutable_data_ptr<float>(),
          ShapeOf(memory, classes, label_smoothing), stream);
    });
    // mark_dirty() cannot be used, because it requires that the logits are an output of the Function. The logits get a
    // new version instead, which makes the backward of any other operation that saved the logits throw. `memory` is
    // saved with the new version, so the backward of this Function does not throw.
    torch::autograd::impl::bump_version(memory);
    context->save_for_backward({memory});
    return losses.sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    return {context->get_saved_variables()[0].detach(), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor CrossEntropySum(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                           double label_smoothing, const at::Tensor& gradient) {
  if (!IsOnGpu(logits) || !IsFloatType(logits.scalar_type())) {
    return CrossEntropySumTwin(logits, target, classes, label_smoothing);
  }
  TORCH_CHECK(logits.dim() == 2 && target.dim() == 1 && target.size(0) == logits.size(0) &&
                  target.scalar_type() == at::kLong && target.device() == logits.device(),
              "cross-entropy: logits ", logits.toString(), logits.sizes(), " with targets ",
              target.toString(), target.sizes(), " on ", target.device(),
              ": they are to be [rows, classes] and int64 [rows]");
  if (gradient.defined() && at::GradMode::is_enabled() && logits.requires_grad()) {
    TORCH_CHECK(gradient.dim() == 0 && gradient.device() == logits.device(),
                "cross-entropy: the gradient is not one number on ", logits.device());
    return CrossEntropyAndGradient::apply(logits.contiguous(), target.contiguous(), gradient,
                                          classes, label_smoothing);
  }
  return FusedCrossEntropy::apply(logits.contiguous(), target.contiguous(), classes,
                                  label_smoothing);
}

at::Tensor CrossEntropySumTwin(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                               double label_smoothing) {
  return at::cross_entropy_loss(logits.narrow(1, 0, classes).to(at::kFloat), target, /*weight=*/{},
                                at::Reduction::Sum, /*ignore_index=*/kIgnoredTarget,
                                label_smoothing);
}

}  // namespace lockstep::ops
