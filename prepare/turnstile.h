// Turnstile: makes threads that process the items of a list deliver their results in the order of the list.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace lockstep {

// Lets the items pass one after the other in their order, although the threads may finish them in another order.
class Turnstile {
 public:
  explicit Turnstile(int64_t first) : next_(first) {}

  // Waits until all items before `item` have passed, and then calls `act`. If one of the items before will never pass,
  // returns without calling `act`. If `act` throws, throws the same exception, and no later item passes.
  void Pass(int64_t item, const std::function<void()>& act);

  // Says that `item` will never pass, so no later item passes, either.
  void Close(int64_t item);

 private:
  std::mutex mutex_;
  std::condition_variable passed_;
  int64_t next_;
  int64_t closed_ = INT64_MAX;
};

}  // namespace lockstep
