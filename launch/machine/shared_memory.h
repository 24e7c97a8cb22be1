// FreeSharedMemory(): says how much of /dev/shm is free. The ranks of one machine exchange their messages through
// /dev/shm.
#pragma once

#include <sys/statvfs.h>

#include <cstdint>
#include <optional>

namespace lockstep {

// Open MPI dies where a rank's part does not fit.
inline constexpr int64_t kSharedMemoryPerRank = 5 << 20;  // bytes

inline constexpr char kMoreSharedMemory[] =
    "in a container start it with --shm-size=1g, elsewhere mount -o remount,size=1g /dev/shm";

// In bytes; nothing: it cannot be told.
inline std::optional<int64_t> FreeSharedMemory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return std::nullopt;
  return static_cast<int64_t>(status.f_bavail * status.f_frsize);
}

}  // namespace lockstep
