#include "prepare/turnstile.h"

#include <algorithm>

namespace lockstep {

void Turnstile::Pass(int64_t item, const std::function<void()>& act) {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [&] { return next_ == item || closed_ < item; });
  if (closed_ < item) return;
  try {
    act();
  } catch (...) {
    closed_ = item;
    passed_.notify_all();
    throw;
  }
  ++next_;
  passed_.notify_all();
}

void Turnstile::Close(int64_t item) {
  const std::lock_guard lock(mutex_);
  closed_ = std::min(closed_, item);
  passed_.notify_all();
}

}  // namespace lockstep
