// GuardedMemory: an allocator of LibTorch's CPU tensors that shows each access beyond a tensor's memory as a SIGSEGV.
//
// Each allocation has pages of its own, between two pages that can be neither read nor written. Most allocations end
// where the page behind them begins, and the others begin where the page before them ends. New memory is filled with
// one byte, so that a result that depends on what was in memory before differs between two fillings.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

namespace lockstep {

class GuardedMemory final : public c10::Allocator {
 public:
  // Makes this process's CPU tensors use the allocator, for good.
  static GuardedMemory& Use();

  // Sets what the next allocations are filled with, and the places of the next allocations.
  void Begin(uint8_t fill, uint64_t seed) {
    fill_ = fill;
    places_ = seed;
  }

  // Refuses allocations (c10::Error) that would make the sum of all greater than `bytes`.
  void Limit(uint64_t bytes) { most_bytes_ = bytes; }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

 private:
  GuardedMemory() = default;

  uint8_t fill_ = 0;
  uint64_t places_ = 0, most_bytes_ = uint64_t{1} << 28;
};

}  // namespace lockstep
