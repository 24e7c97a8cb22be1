// Turnstile: makes threads that work on the items of one list hand in their results in the order of the list.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace lockstep {

// Items pass one after the other, in their order, though threads come with them in another.
class Turnstile {
 public:
  explicit Turnstile(int64_t first) : next_(first) {}

  // Calls `act` once the items before `item` have passed. Does nothing where one of them never will.
  // Throws what `act` throws; then no later item passes.
  void Pass(int64_t item, const std::function<void()>& act);

  // `item` will never pass.
  void Close(int64_t item);

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  int64_t next_;
  int64_t closed_ = INT64_MAX;
};

}  // namespace lockstep
