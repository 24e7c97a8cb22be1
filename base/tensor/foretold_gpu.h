// A foretold GPU: LibTorch's device META, whose tensors have sizes and no memory. A step that is made there allocates what
// it would allocate on a GPU, launches nothing, and computes nothing (trainer/run/foretell.h).
#pragma once

#include <c10/core/Device.h>

namespace lockstep {

// The properties of a GPU that decide which kernels run and how much they allocate.
struct GpuTraits {
  int major = 9;  // compute capability
  int minor = 0;
  int multiprocessors = 132;

  // Whether it has products of BF16 and TF32.
  bool HasBfloat16() const { return major >= 8; }
};

// Whether operations take the way of a GPU.
inline bool IsOnGpu(const c10::Device& device) { return device.is_cuda() || device.is_meta(); }

// The traits of a GPU of this machine, or of the foretold one.
GpuTraits TraitsOf(const c10::Device& device);

// Says what GPU is foretold. Until then it is an H100.
void Foretell(const GpuTraits& traits);

}  // namespace lockstep
