#include "config/formats/decoding_gpu.h"

#include <ATen/cuda/CUDAContext.h>

#include "base/error.h"
#include "data/images/gpu_decoder.h"

namespace lockstep {

std::optional<at::Device> DecodingGpu(const config::Images& config, at::Device device, int cores) {
  // The number of CPU cores that decode at least as many images per second as the fastest GPU needs to train ResNet-50.
  constexpr int kManyCores = 4;
  // To train ResNet-50, a GPU with fewer multiprocessors than this number needs at most as many images per second as
  // two CPU cores decode.
  constexpr int kManyMultiprocessors = 100;
  switch (config.decode()) {
    case config::Images::CPU:
      return std::nullopt;
    case config::Images::GPU:
      if (const std::string why = GpuDecoder::Unavailable(device); !why.empty()) {
        throw UsageError("data.images.decode: GPU: {}", why);
      }
      return device;
    case config::Images::AUTO:
      if (config.cache() == config::Images::DECODED || cores >= kManyCores ||
          !GpuDecoder::Unavailable(device).empty() ||
          at::cuda::getDeviceProperties(device.index())->multiProcessorCount <
              kManyMultiprocessors) {
        return std::nullopt;
      }
      return device;
  }
  throw BugError("data.images.decode {}", static_cast<int>(config.decode()));
}

}  // namespace lockstep
