// Loads nvJPEG, NVIDIA's JPEG library, when it is first needed.
//
// The program is not linked with nvJPEG, because nvJPEG is not a part of PyTorch, and a user who decodes on the CPU
// does not need nvJPEG.
#pragma once

#include <nvjpeg.h>

#include <string>

namespace lockstep {

// The functions of nvJPEG that Lockstep uses. The members are named like the functions, without the prefix `nvjpeg`.
struct Nvjpeg {
  decltype(&nvjpegCreateExV2) CreateExV2 = nullptr;
  decltype(&nvjpegJpegStateCreate) JpegStateCreate = nullptr;
  decltype(&nvjpegJpegStateDestroy) JpegStateDestroy = nullptr;
  decltype(&nvjpegDecodeBatchedInitialize) DecodeBatchedInitialize = nullptr;
  decltype(&nvjpegDecodeBatched) DecodeBatched = nullptr;

  std::string why_not;  // why nvJPEG cannot be used; empty if it can be used
};

// Returns the functions of nvJPEG. The first call loads the library, from the folder of PyTorch's PyPI packages or from
// the system.
const Nvjpeg& LoadedNvjpeg();

}  // namespace lockstep
