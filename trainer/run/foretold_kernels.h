// Registers kernels that LibTorch lacks for the device META, whose tensors have no values. With these kernels a
// training step runs on a foretold GPU, a simulated GPU that only counts memory (base/tensor/foretold_gpu.h).
//
// Promise: once the kernels are registered, LibTorch's operations on tensors of the device META allocate what their
// CUDA kernels allocate. Kernels are registered for:
//   - convolutions, attention, recurrent layers, dropout, normalisation and others, for which LibTorch has no kernels
//     on META, or kernels that allocate other tensors than the CUDA kernels do
//   - operations whose inputs autocast converts to 16 bits or to float32: on a thread with a Foretelling object, the
//     inputs on META are converted in the same way
// Operations on tensors of other devices do not change. The amount of memory that cuDNN allocates for LSTMs was
// measured on one H100 (docs/memory.md).
//
// what can fail -> what the caller sees -> the test that shows it
//   an operation without a kernel for META in LibTorch or here -> c10::Error that names the operation
//     -> tests/estimate_test.py, test_an_operation_that_cannot_be_foretold
#pragma once

namespace lockstep {

// Registers the kernels in this process. Calls after the first do nothing.
void RegisterForetoldKernels();

// Makes this thread's operations on META convert their inputs as autocast does on a GPU, until the object is destroyed.
class Foretelling {
 public:
  // `fills` says whether operations that fill a tensor with a constant or with random numbers are run. If `fills` is
  // false, a model is constructed faster, and its construction draws no numbers from the process's random number
  // generators.
  explicit Foretelling(bool fills);
  ~Foretelling();
  Foretelling(const Foretelling&) = delete;
  Foretelling& operator=(const Foretelling&) = delete;
};

}  // namespace lockstep
