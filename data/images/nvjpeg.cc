#include "data/images/nvjpeg.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

Nvjpeg Load() {
  const std::string name = fmt::format("libnvjpeg.so.{}", CUDART_VERSION / 1000);
  Nvjpeg nvjpeg;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();
    nvjpeg.why_not = fmt::format("{} cannot be loaded (pip install nvidia-nvjpeg brings it): {}",
                                 name, reason == nullptr ? "no reason given" : reason);
    return nvjpeg;
  }
  const auto find = [&](auto& function, const char* of) {
    void* const symbol = dlsym(library, of);
    if (symbol == nullptr) nvjpeg.why_not = fmt::format("{} has no {}", name, of);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(nvjpeg.CreateExV2, "nvjpegCreateExV2");
  find(nvjpeg.JpegStateCreate, "nvjpegJpegStateCreate");
  find(nvjpeg.JpegStateDestroy, "nvjpegJpegStateDestroy");
  find(nvjpeg.DecodeBatchedInitialize, "nvjpegDecodeBatchedInitialize");
  find(nvjpeg.DecodeBatched, "nvjpegDecodeBatched");
  return nvjpeg;
}

}  // namespace

const Nvjpeg& LoadedNvjpeg() {
  static const Nvjpeg loaded = Load();
  return loaded;
}

}  // namespace lockstep
