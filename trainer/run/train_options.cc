#include "trainer/run/train_options.h"

#include <c10/cuda/CUDAStream.h>

namespace lockstep {

bool IsLost(at::Device device) {
  if (!device.is_cuda()) return false;
  const cudaError_t state = cudaStreamQuery(c10::cuda::getCurrentCUDAStream(device.index()));
  return state != cudaSuccess && state != cudaErrorNotReady;
}

}  // namespace lockstep
