// Loads nvJPEG, NVIDIA's JPEG library, when it is first needed.
//
// The program is not linked with nvJPEG, because nvJPEG does not come with PyTorch, and a user who decodes on the CPU
// does not need it.
#pragma once

#include <nvjpeg.h>

#include <string>

namespace lockstep {

// The functions of nvJPEG that Lockstep uses. Their names lack the prefix `nvjpeg`.
struct Nvjpeg {
  decltype(&nvjpegCreateExV2) CreateExV2 = nullptr;
  decltype(&nvjpegJpegStateCreate) JpegStateCreate = nullptr;
  decltype(&nvjpegJpegStateDestroy) JpegStateDestroy = nullptr;
  decltype(&nvjpegDecodeBatchedInitialize) DecodeBatchedInitialize = nullptr;
  decltype(&nvjpegDecodeBatched) DecodeBatched = nullptr;

  std::string why_not;  // the reason why nvJPEG cannot be used; empty if it can
};

// Loads nvJPEG at the first call, from the folder of PyTorch's PyPI packages or from the system, and returns it.
const Nvjpeg& LoadedNvjpeg();

}  // namespace lockstep
