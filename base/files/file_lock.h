// Locks files with flock(2). The system releases a lock when the process that holds it ends.
#pragma once

namespace lockstep {

// Takes an exclusive lock on the open file `file`. Tries for up to a second, because a call of IsLocked() in another
// process holds a lock for a moment. Returns 0, or the errno of flock(2), which is EWOULDBLOCK if another process holds
// a lock.
int LockFile(int file);

// Returns whether another process has locked the open file `file`. If no process has locked the file, this call takes a
// shared lock, which lasts until `file` is closed.
bool IsLocked(int file);

}  // namespace lockstep
