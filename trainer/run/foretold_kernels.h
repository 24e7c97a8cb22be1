// The kernels that LibTorch lacks for steps on a foretold GPU (base/tensor/foretold_gpu.h).
//
// Promise: once the kernels are registered, LibTorch's operations on tensors of the device META allocate what their
// CUDA kernels allocate:
//   - convolutions, attention, recurrent layers, dropout, normalisation and others, for which LibTorch has no kernels
//     on META, or kernels that allocate other tensors than those on a GPU
//   - operations whose inputs autocast converts to 16 bits or to float32: the inputs are converted on META, too, on a
//     thread with a Foretelling object
// Nothing changes for tensors of other devices. The memory that cuDNN allocates for LSTMs was measured on one H100
// (docs/memory.md).
//
// what can fail -> what the caller sees -> the test that shows it
//   an operation that neither LibTorch nor this file knows on META -> c10::Error that names it
//     -> tests/estimate_test.py, test_an_operation_that_cannot_be_foretold
#pragma once

namespace lockstep {

// Registers the kernels in this process. Further calls do nothing.
void RegisterForetoldKernels();

// While a Foretelling object exists, this thread's operations convert their inputs as autocast does on a GPU.
class Foretelling {
 public:
  // `fills` says whether operations that fill a tensor with a constant or with random numbers are run. Without them a
  // model whose values nobody reads is made faster, and draws none of the process's random numbers.
  explicit Foretelling(bool fills);
  ~Foretelling();
  Foretelling(const Foretelling&) = delete;
  Foretelling& operator=(const Foretelling&) = delete;
};

}  // namespace lockstep
