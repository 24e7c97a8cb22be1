// Checks the conditions that a tensor must meet before NCCL or MPI can send it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

namespace lockstep {

// Throws Error (kBug) unless `tensor` is contiguous and on a device of type `device`.
void CheckSendable(const at::Tensor& tensor, at::DeviceType device);

// Throws Error (kBug) unless CheckSendable() accepts both tensors, they have one dtype, and `whole` has `ranks` times
// as many elements as `part`.
void CheckParts(const at::Tensor& whole, const at::Tensor& part, int ranks, at::DeviceType device);

}  // namespace lockstep
