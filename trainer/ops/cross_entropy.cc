#include "trainer/ops/cross_entropy.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trainer/ops/cross_entropy_kernel.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

FloatType TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return FloatType::kFloat16;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    default:
      return FloatType::kFloat32;
  }
}

CrossEntropyShape ShapeOf(const at::Tensor& logits, int64_t classes, double label_smoothing) {
  return {.rows = logits.size(0),
          .columns = logits.size(1),
          .classes = classes,
          .label_smoothing = static_cast<float>(label_smoothing)};
}

cudaStream_t StreamOf(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

class FusedCrossEntropy : public torch::autograd::Function<FusedCrossEntropy> {
 public:
  static Variable forward(AutogradContext* context, const Variable& logits, const Variable& target,
                          int64_t classes, double label_smoothing) {
    const c10::cuda::CUDAGuard guard(logits.device());
    const at::TensorOptions options = logits.options().dtype(at::kFloat);
    const at::Tensor losses = at::empty({logits.size(0)}, options);
    const at::Tensor log_sums = at::empty({logits.size(0), 2}, options);
    LaunchCrossEntropy(logits.const_data_ptr(), TypeOf(logits), target.const_data_ptr<int64_t>(),
                       losses.mutable_data_ptr<float>(),
                       reinterpret_cast<LogSum*>(log_sums.mutable_data_ptr<float>()),
                       ShapeOf(logits, classes, label_smoothing), StreamOf(logits));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    context->save_for_backward({logits, target, log_sums});
    context->saved_data["classes"] = classes;
    context->saved_data["label_smoothing"] = label_smoothing;
    return losses.sum();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    // Without history: what is written over it is not the logits any more.
    const at::Tensor logits = saved[0].detach();
    const c10::cuda::CUDAGuard guard(logits.device());
    const at::Tensor gradient = gradients[0].to(at::kFloat);
    LaunchCrossEntropyBackward(logits.mutable_data_ptr(), TypeOf(logits),
                               saved[1].const_data_ptr<int64_t>(),
                               reinterpret_cast<const LogSum*>(saved[2].const_data_ptr<float>()),
                               gradient.const_data_ptr<float>(),
                               ShapeOf(logits, context->saved_data["classes"].toInt(),
                                       context->saved_data["label_smoothing"].toDouble()),
                               StreamOf(logits));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {logits, {}, {}, {}};
  }
};

}  // namespace

at::Tensor CrossEntropySum(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                           double label_smoothing) {
  if (!logits.is_cuda()) return CrossEntropySumTwin(logits, target, classes, label_smoothing);
  return FusedCrossEntropy::apply(logits.contiguous(), target.contiguous(), classes,
                                  label_smoothing);
}

at::Tensor CrossEntropySumTwin(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                               double label_smoothing) {
  return at::cross_entropy_loss(logits.narrow(1, 0, classes).to(at::kFloat), target, /*weight=*/{},
                                at::Reduction::Sum, /*ignore_index=*/-100, label_smoothing);
}

}  // namespace lockstep::ops
