#include "observe/trace.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/scratch_folder.h"

namespace lockstep {

void Trace(OutputTarget& target, at::Device device, const std::function<void()>& act) {
  namespace profiler = torch::autograd::profiler;
  std::set<torch::profiler::impl::ActivityType> activities{
      torch::profiler::impl::ActivityType::CPU};
  if (device.is_cuda()) activities.insert(torch::profiler::impl::ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  act();
  if (device.is_cuda()) c10::cuda::getCurrentCUDAStream(device.index()).synchronize();
  // Kineto replaces whatever has the name that it is given.
  const std::string temporary = std::filesystem::temp_directory_path().string();
  const ScratchFolder folder(temporary);
  if (folder.path().empty()) {
    throw CheckpointError("{}: no folder can be made there for the trace: set TMPDIR", temporary);
  }
  const std::string path = folder.path() + "/trace.json";
  profiler::disableProfiler()->save(path);
  const MappedFile trace(path);
  target.Write([&](const AppendBytes& append) {
    append(std::as_bytes(std::span(trace.data(), static_cast<size_t>(trace.bytes()))));
  });
}

}  // namespace lockstep
