#include "trainer/ops/adam.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>

#include "trainer/ops/launch_arguments.h"

namespace lockstep::ops {

FusedAdam::FusedAdam(std::vector<at::Tensor> parameters, std::vector<at::Tensor> gradients,
                     std::vector<at::Tensor> means, std::vector<at::Tensor> mean_squares) {
  std::vector<AdamChunk> chunks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    float* const w = parameters[i].mutable_data_ptr<float>();
    float* const g = gradients[i].mutable_data_ptr<float>();
    float* const m = means[i].mutable_data_ptr<float>();
    float* const v = mean_squares[i].mutable_data_ptr<float>();
    const int64_t elements = parameters[i].numel();
    for (int64_t begin = 0; begin < elements; begin += kAdamChunk) {
      chunks.push_back(
          {w + begin, g + begin, m + begin, v + begin, std::min(kAdamChunk, elements - begin)});
    }
  }
  chunks_ = static_cast<int64_t>(chunks.size());
  const auto bytes = static_cast<int64_t>(chunks.size() * sizeof(AdamChunk));
  const at::Tensor table = at::empty({bytes}, at::kByte);
  std::memcpy(table.mutable_data_ptr(), chunks.data(), bytes);
  table_ = table.to(parameters.front().device());
  for (auto* list : {&parameters, &gradients, &means, &mean_squares}) {
    kept_.insert(kept_.end(), list->begin(), list->end());
  }
}

void FusedAdam::Update(const AdamRules& rules, const at::Tensor& lr, const at::Tensor& updates,
                       const at::Tensor& skip, const at::Tensor& grad_scale) const {
  const c10::cuda::CUDAGuard guard(table_.device());
  LaunchAdam(reinterpret_cast<const AdamChunk*>(table_.const_data_ptr<uint8_t>()), chunks_, rules,
             lr.const_data_ptr<float>(), updates.const_data_ptr<float>(),
             skip.const_data_ptr<float>(),
             grad_scale.defined() ? grad_scale.const_data_ptr<float>() : nullptr, StreamOf(table_));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace lockstep::ops
