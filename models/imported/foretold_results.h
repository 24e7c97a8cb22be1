// Foretold(): the sizes and the dtypes that the results of one of LibTorch's operations will have.
//
// The operation is called with tensors on LibTorch's device META, which have sizes and no memory. LibTorch has no
// kernels for META for a tenth of the operations of python/lockstep/operations.txt. foretold_results.cc has functions
// that compute the sizes of their results. They are used only while Foretold() runs, so that other uses of META, such
// as a foretold GPU (base/tensor/foretold_gpu.h), do not change.
//
// what can fail -> what the caller sees -> the test that shows it
//   results that depend on the values of tensors, so that their sizes cannot be foretold; sizes whose product has more
//     than 63 bits -> c10::Error -> models/imported/exported_graph_test.cc
//   sizes that are not those of the operation's results -> a failed call of tests/fuzz/operation_calls.cc
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace lockstep::exported {

// Returns the results of a call, as tensors on META. The call must keep the operation's contract (contract.h).
// `arguments` are in the order of the operation's schema, their tensors are on META. Throws c10::Error.
//
// META has no autocast. If the call will `round` under autocast, each dtype of 16 bits counts as float32, also among the
// arguments, as if nothing were rounded. A view that takes a tensor's bits for another dtype is then refused.
std::vector<c10::IValue> Foretold(const c10::OperatorHandle& operation,
                                  std::vector<c10::IValue> arguments, bool rounds);

// Returns a tensor on META that has the sizes, strides and dtype of `tensor`, or float32 if that has 16 bits and
// `widens`.
at::Tensor OnMeta(const at::Tensor& tensor, bool widens = false);

}  // namespace lockstep::exported
