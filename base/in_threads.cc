#include "base/in_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cores.h"

namespace lockstep {

void InThreads(int threads, int64_t count, const std::function<void(int64_t)>& act) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;  // guards `exception` and `failed`
  std::exception_ptr exception;
  int64_t failed = count;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        act(i);
      } catch (...) {
        next = count;  // ends all threads' loops; the calls with smaller arguments have begun
        const std::lock_guard lock(mutex);
        if (i >= failed) continue;
        failed = i;
        exception = std::current_exception();
      }
    }
  };

  std::vector<std::thread> others;
  try {
    others.reserve(std::max(threads, 1));
    for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) others.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads can be started. The threads that exist do the work.
  }
  work();
  for (std::thread& other : others) other.join();
  if (exception) std::rethrow_exception(exception);
}

int ReadingThreads() { return std::clamp(UsableCores(), 4, 32); }

}  // namespace lockstep
