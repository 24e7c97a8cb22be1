// Mailbox: hands the newest value from one thread to another, without a lock.
//
// Promise: neither side ever waits for the other. If a value was not taken, the next value replaces it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace lockstep {

template <typename T>
class Mailbox {
 public:
  Mailbox() = default;
  ~Mailbox() { Take(); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Put(std::unique_ptr<T> value) { Replace(std::move(value)); }

  // Returns the newest value, or null if Put() was not called since the last call of Take().
  std::unique_ptr<T> Take() { return Replace(nullptr); }

 private:
  std::unique_ptr<T> Replace(std::unique_ptr<T> value) {
    return std::unique_ptr<T>(newest_.exchange(value.release(), std::memory_order_acq_rel));
  }

  std::atomic<T*> newest_ = nullptr;
};

}  // namespace lockstep
