// KeptBytes: a cache that keeps the bytes of samples in memory.
//
// Promise: kept bytes never change, and they stay until the KeptBytes is destroyed. A sample is kept whole or not at
// all. The kept bytes, with 8 more bytes for each kept sample, never exceed the budget. The budget does not include a
// table of 8 bytes for each sample of the data set.
//
// Invariants: a reader takes no lock and loads one pointer. If two threads make the bytes of the same sample, only one
// copy is kept. If the memory for a sample cannot be allocated, the sample is not kept.
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

  // Takes `bytes` from the budget. Takes nothing and returns false if fewer bytes are left.
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

  // Returns the kept bytes of `sample`, or an empty span if `sample` is not kept.
  std::span<const std::byte> Find(int64_t sample) const;

  // Keeps `bytes` bytes of `sample`, which fill(to) writes to `to`, if the budget has room for them and `sample` is not
  // yet kept.
  void Keep(int64_t sample, size_t bytes, const std::function<void(std::byte*)>& fill);

 private:
  std::shared_ptr<MemoryBudget> budget_;
  // For each sample: a pointer to the number of its bytes (uint64_t), which these bytes follow; null: the sample is not
  // kept.
  std::vector<std::atomic<const std::byte*>> kept_;
};

}  // namespace lockstep
