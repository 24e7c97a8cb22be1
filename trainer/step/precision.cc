#include "trainer/step/precision.h"

#include <ATen/Context.h>

#include <cstdlib>

#include "base/error.h"
#include "base/tensor/foretold_gpu.h"
#include "ops/autocast/own_operations.h"

namespace lockstep {
namespace {

AutocastState StateFor(at::DeviceType device, config::Precision precision) {
  AutocastState state = AutocastState::Now(device);
  state.enabled = Is16Bit(precision);
  if (state.enabled) state.dtype = precision == config::BF16 ? at::kBFloat16 : at::kHalf;
  return state;
}

}  // namespace

config::Precision PrecisionOn(at::Device device, config::Precision wanted) {
  if (device.is_cpu()) {
    if (wanted == config::TF32)
      throw UsageError("precision TF32: a CPU has none: take FP32 or BF16");
    return wanted == config::AUTO ? config::FP32 : wanted;
  }
  const GpuTraits gpu = TraitsOf(device);
  if (wanted == config::AUTO) return gpu.HasBfloat16() ? config::BF16 : config::FP16;
  if (!gpu.HasBfloat16() && (wanted == config::BF16 || wanted == config::TF32)) {
    throw UsageError("precision {}: a GPU of compute capability {}.{} has none: take FP16",
                     config::Precision_Name(wanted), gpu.major, gpu.minor);
  }
  return wanted;
}

void SetUpNumerics(config::Precision precision, bool deterministic) {
  at::Context& context = at::globalContext();
  // By default cuDNN would round a float32 convolution's inputs to tf32. With BF16 and FP16 the operations that stay in
  // float32 may round, too, because everything around them is rounded.
  context.setAllowTF32CuDNN(precision != config::FP32);
  context.setAllowTF32CuBLAS(precision != config::FP32);
  context.setDeterministicCuDNN(deterministic);
  // Timing cuDNN's algorithms anew at each start takes 4 to 10 s. For 16-bit convolutions the choice is kept in a file
  // (ops/convolution/convolution_planner.h).
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  // Otherwise LibTorch would fill all new memory with NaN before it is used.
  context.setDeterministicFillUninitializedMemory(false);
  ops::UseOwnOperations();
  // cuBLAS is deterministic only with this variable, which must be set before its first call.
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

Autocast::Autocast(at::Device device, config::Precision precision)
    : guard_(StateFor(device.type(), precision)) {}

}  // namespace lockstep
