#include "observe/trace.h"

#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/files/mapped_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Of its own, as Kineto replaces whatever has the name that it is given.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / "lockstep-trace.XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) {
      throw CheckpointError("{}: cannot be made: {}", path_, std::strerror(errno));
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

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
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/trace.json";
  profiler::disableProfiler()->save(path);
  const MappedFile trace(path);
  target.Write([&](const AppendBytes& append) {
    append(std::as_bytes(std::span(trace.data(), static_cast<size_t>(trace.bytes()))));
  });
}

}  // namespace lockstep
