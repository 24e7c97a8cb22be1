#include "trainer/run/device_wait.h"

#include <c10/cuda/CUDAStream.h>

namespace lockstep {

void WaitForDevice(at::Device device) {
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

}  // namespace lockstep
