// MemoryTally: counts the memory that a step takes: what the memory is for, its peak, and what is still allocated after
// the step.
//
// Promise: at each moment the bytes of all labels add up to the bytes of all allocations that are not freed. This
// includes the allocations that were made before the step (Hold()). The composition of the peak is taken at the moment
// at which the total was greatest.
//
// Invariants:
//   1. An allocation keeps the label (phase, owner, module) that it got when it was made, unless Own() changes the
//      owner in this label.
//   2. Begin() forgets everything. After Begin(), all calls of Hold() must come before the first Allocate().
//
// what can fail -> what the caller sees -> the test that shows it (observe/memory/memory_tally_test.cc)
//   memory is freed that was neither held nor allocated -> the free does not count
//     -> MemoryTally.LeavesOutWhatItDoesNotKnow
//   other threads allocate or free memory during the step -> Correct() counts it as kOther ->
//     MemoryTally.CountsWhatOthersTake
//   a free is not reported -> the next allocation at that address replaces the old one
//     -> MemoryTally.AnAddressThatComesAgain
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/memory_scope.h"

namespace lockstep {

// Bytes of each MemoryOwner.
using OwnerBytes = std::array<int64_t, kMemoryOwners>;

// Memory that a step has allocated and not freed.
struct KeptMemory {
  size_t phase = 0;
  std::string module;  // empty: no module was known
  MemoryOwner owner = MemoryOwner::kUnknown;
  int64_t bytes = 0;
};

class MemoryTally {
 public:
  // Makes a tally of a step that has `phases` phases. Memory without an owner counts as activations if it is allocated
  // in phase kForwardPhase or by any module, and otherwise as temporaries.
  explicit MemoryTally(size_t phases) : phases_(phases) {}
  static constexpr size_t kForwardPhase = 0;

  void Begin();

  // Adds memory that was allocated before the step: `owner` has `bytes` at `address`. Further calls with the same
  // address do nothing.
  void Hold(const void* address, int64_t bytes, MemoryOwner owner);
  // Sets the total to `total` bytes. The difference from now_bytes() counts as kOther.
  void Correct(int64_t total);

  // Sets the phase of the allocations that follow.
  void Enter(size_t phase);

  void Allocate(const void* address, int64_t bytes, MemoryOwner owner, std::string_view module);
  void Free(const void* address);
  // Changes the owner of the memory at `address`. Does nothing if no memory at `address` was given to Allocate(), or if
  // that memory was freed.
  void Own(const void* address, MemoryOwner owner);

  int64_t now_bytes() const { return total_; }
  // Returns the sum of the bytes given to Hold().
  int64_t held_bytes() const { return held_; }

  // Return the peak over all phases, and the peak of each phase.
  int64_t peak_bytes() const { return peak_; }
  const std::vector<int64_t>& phase_peaks() const { return phase_peaks_; }

  // Returns the bytes of each owner at the peak. These bytes add up to peak_bytes().
  OwnerBytes OwnersAtPeak() const;
  // Returns the bytes of activations at the peak by module, without activations that have no module.
  std::map<std::string, int64_t> ModulesAtPeak() const;
  // Returns the bytes at the peak that were allocated since Begin(), without the bytes of kSamples.
  int64_t NewAtPeak() const;

  // Returns the memory that was allocated since Begin() and is not freed, the largest first.
  std::vector<KeptMemory> Kept() const;

 private:
  // A phase, an owner and a module. Memory that was allocated before the step has the number phases_ in place of a
  // phase.
  using Label = std::tuple<size_t, MemoryOwner, std::string>;
  struct Block {
    size_t label = 0;
    int64_t bytes = 0;
    int64_t born = 0;  // the value of additions_ when the block was allocated
  };

  size_t IndexOf(size_t phase, MemoryOwner owner, std::string_view module);
  void Add(size_t label, int64_t bytes);
  void Remove(size_t label, int64_t bytes);
  MemoryOwner OwnerOf(const Label& label) const;
  const std::vector<int64_t>& AtPeak() const { return at_peak_ ? now_ : then_; }

  size_t phases_;
  size_t phase_ = 0;
  std::map<Label, size_t> index_;
  std::vector<Label> labels_;
  std::unordered_map<const void*, Block> blocks_;
  std::vector<int64_t> now_;   // the present bytes of each label
  std::vector<int64_t> then_;  // the bytes of each label at the peak; not used if at_peak_
  bool at_peak_ = true;        // whether the present total is the peak
  int64_t additions_ = 0;
  int64_t peak_at_ = 0;  // the value of additions_ at the peak
  int64_t total_ = 0;
  int64_t held_ = 0;
  int64_t peak_ = 0;
  std::vector<int64_t> phase_peaks_;
};

}  // namespace lockstep
