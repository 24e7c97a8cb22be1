#include "observe/profile/profiler.h"

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/scratch_folder.h"

namespace lockstep {

namespace profiler = torch::autograd::profiler;

Profiler::~Profiler() {
  if (is_recording_) profiler::disableProfiler();
}

void Profiler::Start() {
  std::set<torch::profiler::impl::ActivityType> activities{
      torch::profiler::impl::ActivityType::CPU};
  if (device_.is_cuda()) activities.insert(torch::profiler::impl::ActivityType::CUDA);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  WaitForDevice();
  profiler::enableProfiler(config, activities);
  is_recording_ = true;
}

nlohmann::json Profiler::Stop() {
  WaitForDevice();
  is_recording_ = false;
  const auto recorded = profiler::disableProfiler();
  const std::string temporary = std::filesystem::temp_directory_path().string();
  const ScratchFolder folder(temporary);
  if (folder.path().empty()) {
    throw CheckpointError("{}: no folder can be made there for the trace: set TMPDIR", temporary);
  }
  const std::string path = folder.path() + "/trace.json";
  recorded->save(path);
  const MappedFile file(path);
  auto trace = nlohmann::json::parse(file.data(), file.data() + file.bytes(), nullptr,
                                     /*allow_exceptions=*/false);
  if (trace.is_discarded() || !trace.contains("traceEvents")) {
    throw CheckpointError("{}: the trace is not whole: make room there, or set TMPDIR", path);
  }
  return trace;
}

void Profiler::WaitForDevice() const {
  // This waits for all streams of the device, because collectives run on a stream of their own.
  if (device_.is_cuda()) c10::cuda::device_synchronize();
}

}  // namespace lockstep
