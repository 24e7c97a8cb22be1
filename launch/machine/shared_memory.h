// FreeSharedMemory(): says how much of /dev/shm is free. The ranks of one machine exchange their messages through
// /dev/shm.
#pragma once

#include <sys/statvfs.h>

#include <cstdint>
#include <optional>

namespace lockstep {

// The shared memory that each rank needs. Open MPI crashes if /dev/shm has less for each rank of the machine.
inline constexpr int64_t kSharedMemoryPerRank = 5 << 20;  // bytes

inline constexpr char kMoreSharedMemory[] =
    "in a container start it with --shm-size=1g, elsewhere mount -o remount,size=1g /dev/shm";

// Returns the free space of /dev/shm in bytes; nothing if there is no /dev/shm.
inline std::optional<int64_t> FreeSharedMemory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return std::nullopt;
  return static_cast<int64_t>(status.f_bavail * status.f_frsize);
}

}  // namespace lockstep
