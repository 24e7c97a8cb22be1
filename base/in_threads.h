// InThreads(): divides work among threads, and returns when all threads have ended.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls act(0), act(1), ... act(count - 1), handed out in this order to up to `threads` threads, the
// caller's among them. Throws what the first of those that threw did, whichever thread was faster; then
// later ones may not have been called.
void InThreads(int threads, int64_t count, const std::function<void(int64_t)>& act);

// Threads for what waits for a disk or a server more than it computes.
int ReadingThreads();

}  // namespace lockstep
