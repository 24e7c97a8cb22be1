// KeptBytes: a cache in memory for the bytes of samples.
//
// Promise: kept bytes never change, and they stay until the KeptBytes is destroyed. A sample is kept whole or not at
// all. The budget is never exceeded, except by a table of 8 bytes for each sample.
//
// Invariants: a reader takes no lock and loads one pointer. If two threads make the same bytes, only one copy is kept.
// If the machine has no memory left, the budget counts as spent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

// The number of bytes that several KeptBytes together may keep.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t bytes) : bytes_(bytes) {}

  // Takes `bytes` from the budget. Returns false if fewer are left.
  bool Take(int64_t bytes);
  void GiveBack(int64_t bytes) { used_ -= bytes; }
  int64_t used() const { return used_; }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> used_{0};
};

// Any number of threads may use a KeptBytes at the same time.
class KeptBytes {
 public:
  // If `budget` is null, nothing is kept.
  KeptBytes(int64_t samples, std::shared_ptr<MemoryBudget> budget);
  ~KeptBytes();
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  // Returns the kept bytes of the sample; empty if it is not kept.
  std::span<const std::byte> Find(int64_t sample) const;

  // Keeps `bytes` bytes, which fill(to) writes, if the budget has room for them.
  void Keep(int64_t sample, size_t bytes, const std::function<void(std::byte*)>& fill);

 private:
  std::shared_ptr<MemoryBudget> budget_;
  // Each element points to the number of bytes of a sample, followed by these bytes.
  std::vector<std::atomic<const std::byte*>> kept_;
};

}  // namespace lockstep
