#include "ops/generated/kernel_cache.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/files/cache_folder.h"
#include "base/files/new_file.h"
#include "base/files/readable_file.h"
#include "base/files/xxh3.h"
#include "base/work_ahead.h"
#include "ops/generated/kernel_prelude.h"

namespace lockstep::ops {
namespace {

constexpr WriteErrors kErrors{.status = ExitStatus::kBug, .when_full = ""};

void Check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS) throw BugError("NVRTC: {}: {}", what, nvrtcGetErrorString(result));
}

// The code that NVRTC makes for the current GPU: machine code, or PTX if NVRTC does not know the GPU yet.
struct Target {
  int capability = 0;
  bool is_machine_code = true;

  std::string Name() const {
    return fmt::format("{}_{}", is_machine_code ? "sm" : "compute", capability);
  }
};

Target TargetOf(int device) {
  int major = 0, minor = 0, count = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  Check(nvrtcGetNumSupportedArchs(&count), "architectures");
  std::vector<int> known(count);
  Check(nvrtcGetSupportedArchs(known.data()), "architectures");
  const int own = 10 * major + minor;
  Target target;
  for (const int capability : known) {
    if (capability <= own && capability > target.capability) target.capability = capability;
  }
  target.is_machine_code = target.capability == own;
  return target;
}

std::string Compile(const std::string& text, const Target& target) {
  nvrtcProgram program = nullptr;
  Check(nvrtcCreateProgram(&program, text.c_str(), "generated.cu", 0, nullptr, nullptr), "program");
  const std::string architecture = "--gpu-architecture=" + target.Name();
  const char* const options[] = {architecture.c_str(), "--std=c++17", "-default-device"};
  const nvrtcResult result = nvrtcCompileProgram(program, std::size(options), options);
  if (result != NVRTC_SUCCESS) {
    size_t size = 0;
    nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    nvrtcGetProgramLog(program, log.data());
    nvrtcDestroyProgram(&program);
    throw BugError("NVRTC refuses a generated kernel: {}", log.substr(0, log.find('\n')));
  }
  const auto size_of = target.is_machine_code ? nvrtcGetCUBINSize : nvrtcGetPTXSize;
  const auto code_of = target.is_machine_code ? nvrtcGetCUBIN : nvrtcGetPTX;
  size_t size = 0;
  Check(size_of(program, &size), "size");
  std::string code(size, '\0');
  Check(code_of(program, code.data()), "code");
  nvrtcDestroyProgram(&program);
  return code;
}

class Reports {
 public:
  void Add(const KernelReport& more) {
    const std::scoped_lock lock(mutex_);
    report_.compiled += more.compiled;
    report_.kept += more.kept;
    report_.compiling_s += more.compiling_s;
    report_.waited_s += more.waited_s;
  }
  KernelReport Report() {
    const std::scoped_lock lock(mutex_);
    return report_;
  }

 private:
  std::mutex mutex_;
  KernelReport report_;
};

Reports& AllReports() {
  static Reports reports;
  return reports;
}

std::string CompileAndReport(const std::string& text, const Target& target) {
  const double begin = SecondsSinceBoot();
  std::string code = Compile(text, target);
  AllReports().Add({.compiled = 1, .compiling_s = SecondsSinceBoot() - begin});
  return code;
}

// Returns the compiled text, from the cache folder if it is there.
std::string CodeOf(const std::string& text, const Target& target) {
  static const std::string folder = KernelFolder(CacheFolder());
  if (folder.empty()) return CompileAndReport(text, target);
  int major = 0, minor = 0;
  Check(nvrtcVersion(&major, &minor), "version");
  const std::string path =
      fmt::format("{}/{:016x}-{}-nvrtc{}.{}", folder, Xxh3Of(text), target.Name(), major, minor);
  // The file has the text, too, so that no kernel of another text with the same hash is taken.
  if (std::optional<std::string> kept = KeptKernel(path); kept && kept->starts_with(text)) {
    AllReports().Add({.kept = 1});
    return kept->substr(text.size());
  }
  std::string code = CompileAndReport(text, target);
  KeepKernel(path, text + code);
  return code;
}

// The kernels of a GPU.
class DeviceKernels {
 public:
  explicit DeviceKernels(int device)
      : target_(TargetOf(device)),
        code_(std::min(UsableCores(), kMostThreads),
              [this](const auto& text) { return CodeOf(KernelPrelude() + text, target_); }) {}

  void Begin(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    if (!kernels_.contains(text)) code_.Begin(text);
  }

  cudaKernel_t Of(const std::string& text) {
    std::unique_lock lock(mutex_);
    if (const auto at = kernels_.find(text); at != kernels_.end()) return at->second;
    lock.unlock();
    const double begin = SecondsSinceBoot();
    const std::string code = code_.Take(text);
    AllReports().Add({.waited_s = SecondsSinceBoot() - begin});
    lock.lock();
    if (const auto at = kernels_.find(text); at != kernels_.end()) return at->second;
    // The code is never unloaded, because captured graphs may use it as long as the process lives.
    cudaLibrary_t library = nullptr;
    C10_CUDA_CHECK(
        cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    cudaKernel_t kernel = nullptr;
    C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library, kKernelName));
    return kernels_[text] = kernel;
  }

 private:
  static constexpr int kMostThreads = 32;

  const Target target_;
  std::mutex mutex_;
  std::unordered_map<std::string, cudaKernel_t> kernels_;
  WorkAhead code_;
};

// Returns the kernels of the current GPU.
DeviceKernels& CurrentKernels() {
  static std::mutex mutex;
  static std::map<int, DeviceKernels> devices;
  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  const std::scoped_lock lock(mutex);
  return devices.try_emplace(device, device).first->second;
}

}  // namespace

void CompileAhead(const std::string& text) { CurrentKernels().Begin(text); }

cudaKernel_t CompiledKernel(const std::string& text) { return CurrentKernels().Of(text); }

KernelReport GeneratedKernels() { return AllReports().Report(); }

std::string KernelFolder(const std::string& cache) { return OwnCacheFolder(cache, "kernels"); }

std::optional<std::string> KeptKernel(const std::string& path) {
  try {
    std::vector<std::byte> buffer;
    const std::span<const std::byte> bytes = ReadableFile(path).ReadWhole(buffer);
    uint64_t checksum = 0;
    if (bytes.size() <= sizeof(checksum)) return std::nullopt;
    std::memcpy(&checksum, bytes.data(), sizeof(checksum));
    std::string content(bytes.size() - sizeof(checksum), '\0');
    std::memcpy(content.data(), bytes.data() + sizeof(checksum), content.size());
    if (Xxh3Of(content) == checksum) return content;
  } catch (const Error&) {
    // There is no such file, or it cannot be read.
  }
  return std::nullopt;
}

void KeepKernel(const std::string& path, std::string_view content) {
  const uint64_t checksum = Xxh3Of(content);
  try {
    NewFile file(path, kErrors);
    file.Write(std::as_bytes(std::span(&checksum, 1)));
    file.Write(std::as_bytes(std::span(content)));
    file.Finish();
  } catch (const Error&) {
    // The next process compiles the kernel again.
  }
}

}  // namespace lockstep::ops
