#include "trainer/ops/update/step_decision.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "trainer/ops/common/launch_arguments.h"
#include "trainer/ops/update/step_decision_kernel.h"

namespace lockstep::ops {

void DecideStep(const at::Tensor& values, const at::Tensor& figures, const at::Tensor& sums,
                const at::Tensor& norm, const StepRules& rules) {
  const float* norm_data = norm.defined() ? norm.const_data_ptr<float>() : nullptr;
  if (!values.is_cuda()) {
    Decide(values.mutable_data_ptr<float>(), figures.mutable_data_ptr<double>(),
           sums.const_data_ptr<float>(), norm_data, rules);
    return;
  }
  const c10::cuda::CUDAGuard guard(values.device());
  LaunchDecide(values.mutable_data_ptr<float>(), figures.mutable_data_ptr<double>(),
               sums.const_data_ptr<float>(), norm_data, rules, StreamOf(values));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void JudgeNorm(const at::Tensor& figures, const at::Tensor& norm) {
  if (!figures.is_cuda()) {
    Judge(figures.mutable_data_ptr<double>(), *norm.const_data_ptr<float>());
    return;
  }
  const c10::cuda::CUDAGuard guard(figures.device());
  LaunchJudge(figures.mutable_data_ptr<double>(), norm.const_data_ptr<float>(), StreamOf(figures));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void BeginWait(const at::Tensor& figures) {
  if (!figures.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(figures.device());
  LaunchBeginWait(figures.mutable_data_ptr<double>(), StreamOf(figures));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void EndWait(const at::Tensor& figures) {
  if (!figures.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(figures.device());
  LaunchEndWait(figures.mutable_data_ptr<double>(), StreamOf(figures));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace lockstep::ops
