// What a kernel's launcher takes of a tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>

#include "trainer/ops/float_type.h"

namespace lockstep::ops {

// Whether the kernels know it.
inline bool IsFloatType(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

// Of one that they know.
inline FloatType TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return FloatType::kFloat16;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    default:
      return FloatType::kFloat32;
  }
}
inline FloatType TypeOf(const at::Tensor& tensor) { return TypeOf(tensor.scalar_type()); }

inline cudaStream_t StreamOf(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

// Whether kernels may load 16 bytes at once, as ours and cuDNN's do.
inline bool IsAligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// The same values where they may.
inline at::Tensor Aligned(const at::Tensor& tensor) {
  return !tensor.is_cuda() || IsAligned(tensor) ? tensor : tensor.clone();
}

}  // namespace lockstep::ops
