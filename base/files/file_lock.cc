#include "base/files/file_lock.h"

#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace lockstep {

int LockFile(int file) {
  constexpr std::chrono::milliseconds kPause{10};
  constexpr int kTries = 100;
  for (int tries = 1; flock(file, LOCK_EX | LOCK_NB) != 0; ++tries) {
    const int error = errno;
    if (error == EINTR) continue;
    if (error != EWOULDBLOCK || tries == kTries) return error;
    std::this_thread::sleep_for(kPause);
  }
  return 0;
}

bool IsLocked(int file) { return flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

}  // namespace lockstep
