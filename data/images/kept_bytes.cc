#include "data/images/kept_bytes.h"

#include <cstring>
#include <new>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kHead = sizeof(uint64_t);

}  // namespace

bool MemoryBudget::Take(int64_t bytes) {
  // If too little of the budget is left, a thread only reads the counter. A write would take the counter's cache line
  // from other threads.
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > bytes_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

KeptBytes::KeptBytes(int64_t samples, std::shared_ptr<MemoryBudget> budget)
    : budget_(std::move(budget)), kept_(budget_ ? samples : 0) {}

KeptBytes::~KeptBytes() {
  for (const auto& kept : kept_) {
    const std::byte* bytes = kept.load(std::memory_order_relaxed);
    if (bytes == nullptr) continue;
    uint64_t size = 0;
    std::memcpy(&size, bytes, kHead);
    budget_->GiveBack(static_cast<int64_t>(kHead + size));
    delete[] bytes;
  }
}

std::span<const std::byte> KeptBytes::Find(int64_t sample) const {
  if (!budget_) return {};
  const std::byte* kept = kept_[sample].load(std::memory_order_acquire);
  if (kept == nullptr) return {};
  uint64_t size = 0;
  std::memcpy(&size, kept, kHead);
  return {kept + kHead, size};
}

void KeptBytes::Keep(int64_t sample, size_t bytes, const std::function<void(std::byte*)>& fill) {
  const auto whole = static_cast<int64_t>(kHead + bytes);
  if (!budget_ || !budget_->Take(whole)) return;
  std::unique_ptr<std::byte[]> kept(new (std::nothrow) std::byte[whole]);
  if (kept) {
    const uint64_t size = bytes;
    std::memcpy(kept.get(), &size, kHead);
    fill(kept.get() + kHead);
    const std::byte* none = nullptr;
    if (kept_[sample].compare_exchange_strong(none, kept.get(), std::memory_order_acq_rel)) {
      static_cast<void>(kept.release());  // kept_ owns the memory
      return;
    }
  }
  budget_->GiveBack(whole);
}

}  // namespace lockstep
