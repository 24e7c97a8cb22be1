// Pool: holds objects that several threads share. One thread at a time uses an object.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lockstep {

// Objects that threads borrow. The pool makes a new object only while all its objects are in use.
template <typename Object>
class Pool {
 public:
  explicit Pool(std::function<std::unique_ptr<Object>()> make) : make_(std::move(make)) {}

  // Calls use(object) with an object that no other thread uses at that time. If `use` throws, the pool does not hand
  // out this object again.
  template <typename Use>
  void With(const Use& use) {
    std::unique_ptr<Object> object = Take();
    use(*object);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  // Returns the objects that are not in use, and removes them from the pool.
  std::vector<std::unique_ptr<Object>> TakeAll() {
    const std::lock_guard lock(mutex_);
    return std::exchange(free_, {});
  }

 private:
  std::unique_ptr<Object> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Object> object = std::move(free_.back());
        free_.pop_back();
        return object;
      }
    }
    return make_();
  }

  std::function<std::unique_ptr<Object>()> make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Object>> free_;
};

}  // namespace lockstep
