// A foretold GPU: a simulated GPU, on which Lockstep predicts how much memory a run takes. It is LibTorch's device
// META, whose tensors have sizes but no memory. A training step on a foretold GPU makes the allocations that the step
// would make on a real GPU, but launches no kernel and computes no values (trainer/run/foretell.h).
#pragma once

#include <c10/core/Device.h>

#include <optional>

namespace lockstep {

// The properties of a GPU that decide which kernels run and how much they allocate.
struct GpuTraits {
  int major = 9;  // compute capability
  int minor = 0;
  int multiprocessors = 132;

  // Returns whether the GPU can multiply matrices in BF16 and TF32.
  bool HasBfloat16() const { return major >= 8; }
};

// Returns whether operations on `device` use the code for GPUs.
inline bool IsOnGpu(const c10::Device& device) { return device.is_cuda() || device.is_meta(); }

// Returns the traits of the GPU `device` of this machine, or of the foretold GPU if `device` is META.
GpuTraits TraitsOf(const c10::Device& device);

// Sets the traits of the foretold GPU. Without this call the foretold GPU has the traits of an H100. `stands_for` is the
// GPU of this machine that will run the foretold steps; nothing: the machine has no such GPU.
void Foretell(const GpuTraits& traits, std::optional<c10::Device> stands_for);

// Returns `device` if it is a GPU, and the GPU that the foretold GPU stands for if `device` is META.
std::optional<c10::Device> RealGpuOf(const c10::Device& device);

}  // namespace lockstep
