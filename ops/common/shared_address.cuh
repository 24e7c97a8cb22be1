// SharedAddress(): converts a pointer to shared memory to the 32-bit address that PTX instructions take.
#pragma once

#include <cstdint>

namespace lockstep::ops {

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

}  // namespace lockstep::ops
