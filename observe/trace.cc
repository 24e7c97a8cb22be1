#include "observe/trace.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

namespace lockstep {

void Trace(const std::string& path, at::Device device, const std::function<void()>& act) {
  namespace profiler = torch::autograd::profiler;
  std::set<torch::profiler::impl::ActivityType> activities{
      torch::profiler::impl::ActivityType::CPU};
  if (device.is_cuda()) activities.insert(torch::profiler::impl::ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  act();
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
  profiler::disableProfiler()->save(path);
}

}  // namespace lockstep
