#include "trainer/ops/fused_update.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/ops/launch_arguments.h"

namespace lockstep::ops {
namespace {

float* Floats(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
}

UpdateScalars Pointers(const FusedUpdate::Scalars& scalars) {
  return {.lr = Floats(scalars.lr),
          .updates = Floats(scalars.updates),
          .skip = Floats(scalars.skip),
          .grad_scale = Floats(scalars.grad_scale)};
}

}  // namespace

FusedUpdate::FusedUpdate(std::vector<Parameter> parameters) : kept_(std::move(parameters)) {
  std::vector<UpdateChunk> chunks;
  const auto from = [](float* pointer, int64_t begin) {
    return pointer == nullptr ? nullptr : pointer + begin;
  };
  for (const Parameter& of : kept_) {
    char* rounded = nullptr;
    if (of.rounded.defined()) {
      rounded = static_cast<char*>(of.rounded.mutable_data_ptr());
      rounded_ = TypeOf(of.rounded);
    }
    const int64_t elements = of.parameter.numel();
    for (int64_t begin = 0; begin < elements; begin += kUpdateChunk) {
      chunks.push_back(
          {.parameter = from(Floats(of.parameter), begin),
           .gradient = from(Floats(of.gradient), begin),
           .first = from(Floats(of.first), begin),
           .second = from(Floats(of.second), begin),
           .rounded = rounded == nullptr ? nullptr : rounded + begin * of.rounded.element_size(),
           .elements = std::min(kUpdateChunk, elements - begin)});
    }
  }
  chunks_ = static_cast<int64_t>(chunks.size());
  const auto bytes = static_cast<int64_t>(chunks.size() * sizeof(UpdateChunk));
  const at::Tensor table = at::empty({bytes}, at::kByte);
  std::memcpy(table.mutable_data_ptr(), chunks.data(), bytes);
  table_ = table.to(kept_.front().parameter.device());
}

void FusedUpdate::Adam(const AdamRules& rules, const Scalars& scalars) const {
  const c10::cuda::CUDAGuard guard(table_.device());
  LaunchAdam(reinterpret_cast<const UpdateChunk*>(table_.const_data_ptr<uint8_t>()), chunks_, rules,
             Pointers(scalars), rounded_, StreamOf(table_));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void FusedUpdate::Sgd(const SgdRules& rules, const Scalars& scalars) const {
  const c10::cuda::CUDAGuard guard(table_.device());
  LaunchSgd(reinterpret_cast<const UpdateChunk*>(table_.const_data_ptr<uint8_t>()), chunks_, rules,
            Pointers(scalars), rounded_, StreamOf(table_));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace lockstep::ops
