// Locks on files that the system releases when their process ends (flock).
#pragma once

namespace lockstep {

// Locks the open file `file` for this process alone, and waits for up to a second for processes that only look whether
// it is locked. Returns 0, or the errno: EWOULDBLOCK if another process has the lock.
int LockFile(int file);

// Returns whether another process has locked the open file `file`. It takes the lock for a moment.
bool IsLocked(int file);

}  // namespace lockstep
