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
  // LibTorch's default lets cuDNN round the inputs of float32 convolutions to tf32, even if the config asks for FP32.
  // With BF16 and FP16, float32 operations may round to tf32, because the 16-bit operations around them round more.
  context.setAllowTF32CuDNN(precision != config::FP32);
  context.setAllowTF32CuBLAS(precision != config::FP32);
  context.setDeterministicCuDNN(deterministic);
  // Benchmark mode would time cuDNN's algorithms again at each start, which takes 4 to 10 s. For 16-bit convolutions
  // the choice of the algorithm is kept in a file (ops/convolution/convolution_planner.h).
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  // By default, LibTorch in deterministic mode fills all new memory with NaN. The next line turns this off.
  context.setDeterministicFillUninitializedMemory(false);
  ops::UseOwnOperations();
  // cuBLAS is deterministic only with this environment variable, which must be set before the first call of cuBLAS.
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

Autocast::Autocast(at::Device device, config::Precision precision)
    : guard_(StateFor(device.type(), precision)) {}

}  // namespace lockstep
