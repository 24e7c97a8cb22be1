// Checks a kernel's tensors, and takes from them the pointers and sizes with which the kernel is launched.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>

#include "base/tensor/foretold_gpu.h"
#include "ops/common/float_type.h"
#include "ops/common/rows_shape.h"

namespace lockstep::ops {

// Returns whether the kernels support this type.
inline bool IsFloatType(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

inline bool Is16Bit(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

// Returns whether `tensor` (such as a bias) is float32 [size] on the device of `like`. The tensor need not be
// contiguous.
inline bool IsFloatVector(const at::Tensor& tensor, int64_t size, const at::Tensor& like) {
  return tensor.scalar_type() == at::kFloat && tensor.device() == like.device() &&
         tensor.dim() == 1 && tensor.size(0) == size;
}

// Returns whether `tensor` is the only reference to its values and to its storage, in which case the values may be
// overwritten.
inline bool IsOwn(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1;
}

// Throws c10::Error unless `pixels` are bytes [count, channels, height, width], contiguous or channels last, and `scale`
// and `shift` fit them. The latter need not be contiguous.
inline void CheckPixels(const at::Tensor& pixels, const at::Tensor& scale,
                        const at::Tensor& shift) {
  TORCH_CHECK(pixels.scalar_type() == at::kByte && pixels.dim() == 4 &&
                  (pixels.is_contiguous() || pixels.is_contiguous(at::MemoryFormat::ChannelsLast)),
              "pixels: not bytes [count, channels, height, width], contiguous or channels last");
  TORCH_CHECK(
      IsFloatVector(scale, pixels.size(1), pixels) && IsFloatVector(shift, pixels.size(1), pixels),
      "pixels: scale and shift are float32 [channels] on the pixels' device");
}

// Returns the FloatType of a type that the kernels support. Throws c10::Error for any other type.
inline FloatType TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return FloatType::kFloat16;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    case at::kFloat:
      return FloatType::kFloat32;
    default:
      TORCH_CHECK(false, "the kernels know float32, float16 and bfloat16, not ", type);
  }
}
inline FloatType TypeOf(const at::Tensor& tensor) { return TypeOf(tensor.scalar_type()); }

inline bool IsOnGpu(const at::Tensor& tensor) { return lockstep::IsOnGpu(tensor.device()); }

inline cudaStream_t StreamOf(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

// Makes the tensor's GPU the current device, calls `launch` with the current stream of this GPU, and throws c10::Error
// if a kernel could not be launched. Does nothing if the tensor is on LibTorch's device "meta", with which Lockstep
// simulates a GPU (base/tensor/foretold_gpu.h).
template <typename LaunchKernels>
void Launch(const at::Tensor& on, const LaunchKernels& launch) {
  if (on.is_meta()) return;
  const c10::cuda::CUDAGuard guard(on.device());
  launch(StreamOf(on));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Returns the shape of `tensor`, [..., width] with width at least 1, as the shape of one matrix [rows, width].
inline RowsShape RowsShapeOf(const at::Tensor& tensor) {
  const int64_t width = tensor.size(-1);
  return {.rows = tensor.numel() / width,
          .width = width,
          .multiprocessors = TraitsOf(tensor.device()).multiprocessors};
}

// Returns whether the tensor begins at a multiple of 16 bytes. Lockstep's and cuDNN's kernels need this alignment,
// because they load 16 bytes at once.
inline bool IsAligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

// Returns `tensor`, or a copy of `tensor` if it is on a GPU and IsAligned() is false.
inline at::Tensor Aligned(const at::Tensor& tensor) {
  return !IsOnGpu(tensor) || IsAligned(tensor) ? tensor : tensor.clone();
}

}  // namespace lockstep::ops
