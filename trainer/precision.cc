#include "trainer/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAContext.h>

#include <cstdlib>

#include "base/error.h"

namespace lockstep {
namespace {

// The first with bf16 and tf32.
constexpr int kAmpere = 8;

}  // namespace

config::Precision PrecisionOn(at::Device device, config::Precision wanted) {
  if (device.is_cpu()) {
    if (wanted == config::TF32)
      throw UsageError("precision TF32: a CPU has none: take FP32 or BF16");
    return wanted == config::AUTO ? config::FP32 : wanted;
  }
  const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
  if (wanted == config::AUTO) return gpu.major >= kAmpere ? config::BF16 : config::FP16;
  if (gpu.major < kAmpere && (wanted == config::BF16 || wanted == config::TF32)) {
    throw UsageError("precision {}: the GPU ({}) has none: take FP16",
                     config::Precision_Name(wanted), gpu.name);
  }
  return wanted;
}

void SetUpNumerics(config::Precision precision, bool deterministic) {
  at::Context& context = at::globalContext();
  // By default cuDNN would round a float32 convolution's inputs to tf32. What BF16 and FP16 leave in
  // float32 may be rounded, too, as everything around it is.
  context.setAllowTF32CuDNN(precision != config::FP32);
  context.setAllowTF32CuBLAS(precision != config::FP32);
  context.setDeterministicCuDNN(deterministic);
  // cuDNN's own choice of algorithms is as fast for ResNet-50 (53.6 ms a step on an H200) as measuring them,
  // which takes 4 to 10 s at the start.
  context.setBenchmarkCuDNN(false);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  // What cuBLAS needs for it, before its first call.
  if (deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

Autocast::Autocast(at::Device device, config::Precision precision)
    : device_(device.type()), was_enabled_(at::autocast::is_autocast_enabled(device_)) {
  const bool rounds = precision == config::BF16 || precision == config::FP16;
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, rounds);
  if (rounds) {
    at::autocast::set_autocast_dtype(device_,
                                     precision == config::BF16 ? at::kBFloat16 : at::kHalf);
  }
}

Autocast::~Autocast() {
  // The outermost one's rounded weights are out of date once the weights change.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
}

NoAutocast::NoAutocast(at::Device device)
    : device_(device.type()),
      was_enabled_(at::autocast::is_autocast_enabled(device_)),
      dtype_(was_enabled_ ? at::autocast::get_autocast_dtype(device_) : at::kFloat) {
  at::autocast::set_autocast_enabled(device_, false);
}

NoAutocast::~NoAutocast() { at::autocast::set_autocast_enabled(device_, was_enabled_); }

}  // namespace lockstep
