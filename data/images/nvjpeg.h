// Loads nvJPEG, NVIDIA's JPEG library, when it is first needed.
//
// The program is not linked with nvJPEG, because nvJPEG does not come with PyTorch, and a user who decodes on the CPU
// does not need it.
#pragma once

#include <nvjpeg.h>

#include <string>

namespace lockstep {

// The functions that are used of it, by their names without `nvjpeg`.
struct Nvjpeg {
  decltype(&nvjpegCreateExV2) CreateExV2 = nullptr;
  decltype(&nvjpegJpegStateCreate) JpegStateCreate = nullptr;
  decltype(&nvjpegJpegStateDestroy) JpegStateDestroy = nullptr;
  decltype(&nvjpegDecodeBatchedInitialize) DecodeBatchedInitialize = nullptr;
  decltype(&nvjpegDecodeBatched) DecodeBatched = nullptr;

  std::string why_not;  // it cannot be used; empty: it can
};

// The library as it was found the first time: as torch's users have it from PyPI, or the system's.
const Nvjpeg& LoadedNvjpeg();

}  // namespace lockstep
