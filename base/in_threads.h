// InThreads(): divides work among threads, and returns when all threads have ended.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls act(0), act(1), ... act(count - 1). Up to `threads` threads, including the caller's, take the calls in this
// order. If one or several calls throw, InThreads() throws the exception of the call with the smallest argument,
// whichever call threw first; calls with greater arguments may then not have been made.
void InThreads(int threads, int64_t count, const std::function<void(int64_t)>& act);

// Returns how many threads to use for work that waits for a disk or a server most of the time.
int ReadingThreads();

}  // namespace lockstep
