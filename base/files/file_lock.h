// Locks on files that the system releases when their process ends (flock).
#pragma once

namespace lockstep {

// Locks the open file `file` for this process alone. It tries for up to a second, because IsLocked() in another process
// holds the lock for a moment. Returns 0, or the errno: EWOULDBLOCK if another process has the lock.
int LockFile(int file);

// Returns whether another process has locked the open file `file`. To find out, it takes a shared lock, which lasts
// until `file` is closed.
bool IsLocked(int file);

}  // namespace lockstep
