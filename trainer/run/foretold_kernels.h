// The kernels that LibTorch lacks for steps on a foretold GPU (base/tensor/foretold_gpu.h).
//
// Promise: once the kernels are registered, LibTorch's operations on tensors of the device META allocate what their
// CUDA kernels allocate:
//   - convolutions, attention, recurrent layers, dropout, normalisation and others, for which LibTorch itself has no
//     kernels on META, or others than on a GPU
//   - operations that autocast rounds, or computes in float32, do so on META, too, on a thread that is Foretelling
// Nothing changes for tensors of other devices. The memory that cuDNN allocates for LSTMs was measured on one H100
// (docs/memory.md).
//
// what can fail -> what the caller sees -> the test that shows it
//   an operation that neither LibTorch nor this file knows on META -> c10::Error that names it
//     -> tests/estimate_test.py, test_an_operation_that_cannot_be_foretold
#pragma once

namespace lockstep {

// Registers them in this process, once.
void RegisterForetoldKernels();

// While it exists, operations of this thread do as the ForetoldKernels say.
class Foretelling {
 public:
  // fills: whether operations that fill a tensor, with random numbers or others, do so. A model whose values nobody
  // reads is made faster without, and draws none of the process's random numbers.
  explicit Foretelling(bool fills);
  ~Foretelling();
  Foretelling(const Foretelling&) = delete;
  Foretelling& operator=(const Foretelling&) = delete;
};

}  // namespace lockstep
