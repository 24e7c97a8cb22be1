#include "base/work_ahead.h"

#include <exception>
#include <system_error>
#include <utility>

namespace lockstep {

WorkAhead::WorkAhead(int threads, Make make) : threads_most_(threads), make_(std::move(make)) {}

WorkAhead::~WorkAhead() {
  {
    const std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkAhead::Begin(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  if (!values_.try_emplace(key).second) return;
  queue_.push_back(key);
  if (idle_ == 0 && static_cast<int>(threads_.size()) < threads_most_) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // The threads that exist do the work, or those that call Take().
    }
  }
  has_work_.notify_one();
}

std::string WorkAhead::Take(const std::string& key) {
  std::unique_lock lock(mutex_);
  Value& value = values_[key];
  const bool is_own = !std::exchange(value.is_begun, true);
  const std::shared_future<std::string> future = value.future;
  lock.unlock();
  if (is_own) Fill(key, value);
  return future.get();
}

void WorkAhead::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    has_work_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    --idle_;
    if (ends_) return;
    const std::string key = std::move(queue_.front());
    queue_.pop_front();
    Value& value = values_.at(key);
    if (std::exchange(value.is_begun, true)) continue;
    lock.unlock();
    Fill(key, value);
    lock.lock();
  }
}

void WorkAhead::Fill(const std::string& key, Value& value) const {
  try {
    value.promise.set_value(make_(key));
  } catch (...) {
    value.promise.set_exception(std::current_exception());
  }
}

}  // namespace lockstep
