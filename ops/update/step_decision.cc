#include "ops/update/step_decision.h"

#include "ops/common/launch_arguments.h"
#include "ops/update/step_decision_kernel.h"

namespace lockstep::ops {

void DecideStep(const at::Tensor& values, const at::Tensor& figures, const at::Tensor& sums,
                const at::Tensor& norm, const StepRules& rules) {
  const float* norm_data = norm.defined() ? norm.const_data_ptr<float>() : nullptr;
  if (!IsOnGpu(values)) {
    Decide(values.mutable_data_ptr<float>(), figures.mutable_data_ptr<double>(),
           sums.const_data_ptr<float>(), norm_data, rules);
    return;
  }
  Launch(values, [&](cudaStream_t stream) {
    LaunchDecide(values.mutable_data_ptr<float>(), figures.mutable_data_ptr<double>(),
                 sums.const_data_ptr<float>(), norm_data, rules, stream);
  });
}

void JudgeNorm(const at::Tensor& figures, const at::Tensor& norm) {
  if (!IsOnGpu(figures)) {
    Judge(figures.mutable_data_ptr<double>(), *norm.const_data_ptr<float>());
    return;
  }
  Launch(figures, [&](cudaStream_t stream) {
    LaunchJudge(figures.mutable_data_ptr<double>(), norm.const_data_ptr<float>(), stream);
  });
}

void BeginWait(const at::Tensor& figures) {
  if (!IsOnGpu(figures)) return;
  Launch(figures,
         [&](cudaStream_t stream) { LaunchBeginWait(figures.mutable_data_ptr<double>(), stream); });
}

void EndWait(const at::Tensor& figures) {
  if (!IsOnGpu(figures)) return;
  Launch(figures,
         [&](cudaStream_t stream) { LaunchEndWait(figures.mutable_data_ptr<double>(), stream); });
}

}  // namespace lockstep::ops
