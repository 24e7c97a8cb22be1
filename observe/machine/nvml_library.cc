#include "observe/machine/nvml_library.h"

#include <fmt/format.h>

namespace lockstep {

NvmlLibrary::NvmlLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) {
    why_not_ = "this machine has no NVIDIA driver";
    return;
  }
  const nvmlReturn_t code = Call<decltype(nvmlInit_v2)>("nvmlInit_v2");
  if (code == NVML_SUCCESS) return;
  auto* const text =
      reinterpret_cast<decltype(nvmlErrorString)*>(dlsym(library_, "nvmlErrorString"));
  why_not_ = fmt::format("the NVIDIA driver does not answer: {}: see nvidia-smi",
                         text != nullptr ? text(code) : fmt::format("error {}", int{code}).c_str());
}

const NvmlLibrary& TheNvml() {
  static const NvmlLibrary nvml;
  return nvml;
}

}  // namespace lockstep
