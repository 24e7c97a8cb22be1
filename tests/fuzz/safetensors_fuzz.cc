// Safetensors files.

#include "base/error.h"
#include "base/files/safetensors.h"
#include "tests/fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const lockstep::MemoryFile file(data, size);
  try {
    lockstep::ReadSafetensors(file.path(), lockstep::kGivenByUser);
  } catch (const lockstep::Error&) {  // refused
  }
  return 0;
}
