// MemoryTally: keeps count of the memory that a step takes: what it is for, when it is most, and what stays behind.
//
// Promise: at each moment the sums over all labels add up to the bytes of all allocations that were held before, or
// made since, and not freed. The composition of the peak is that of the moment at which the total was greatest.
//
// Invariants:
//   1. An allocation's label (phase, owner, module) is the one at the moment when it was made.
//   2. Begin() forgets everything. Hold() comes before the first Allocate().
//
// what can fail -> what the caller sees -> the test that shows it (observe/memory/memory_tally_test.cc)
//   a free of memory that was neither held nor allocated -> it does not count
//     -> MemoryTally.LeavesOutWhatItDoesNotKnow
//   memory that others allocate or free meanwhile -> Correct() makes it kOther's -> MemoryTally.CountsWhatOthersTake
//   a free that nobody told of -> the next allocation at that address takes its place
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
  std::string module;  // empty: no scope named one
  MemoryOwner owner = MemoryOwner::kUnknown;
  int64_t bytes = 0;
};

class MemoryTally {
 public:
  // A step has `phases` phases. Memory without an owner that phase kForwardPhase or any module allocates is
  // activations.
  explicit MemoryTally(size_t phases) : phases_(phases) {}
  static constexpr size_t kForwardPhase = 0;

  void Begin();

  // Tells of memory that exists already: the `owner` has `bytes` at `address`. Calls with the same address count once.
  void Hold(const void* address, int64_t bytes, MemoryOwner owner);
  // Tells that all memory is `total` bytes now. The difference from now_bytes() counts as kOther's.
  void Correct(int64_t total);

  // From now on allocations belong to `phase`.
  void Enter(size_t phase);

  void Allocate(const void* address, int64_t bytes, MemoryOwner owner, std::string_view module);
  void Free(const void* address);
  // Says afterwards what the memory at `address`, which was allocated since Begin() and not freed, is for.
  void Own(const void* address, MemoryOwner owner);

  int64_t now_bytes() const { return total_; }
  // Sum of what Hold() has told.
  int64_t held_bytes() const { return held_; }

  // The most in all phases, and in each.
  int64_t peak_bytes() const { return peak_; }
  const std::vector<int64_t>& phase_peaks() const { return phase_peaks_; }

  // The composition of the peak. The owners' bytes add up to peak_bytes().
  OwnerBytes OwnersAtPeak() const;
  // Activations at the peak by module, as far as scopes name one.
  std::map<std::string, int64_t> ModulesAtPeak() const;
  // The bytes at the peak that were allocated since Begin(), without the samples'.
  int64_t NewAtPeak() const;

  // The memory that was allocated since Begin() and not freed, the largest first.
  std::vector<KeptMemory> Kept() const;

 private:
  // Phase, owner, module. Memory that was held before has the phase phases_.
  using Label = std::tuple<size_t, MemoryOwner, std::string>;
  struct Block {
    size_t label = 0;
    int64_t bytes = 0;
    int64_t born = 0;  // additions_ when it was allocated
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
  std::vector<int64_t> now_;   // bytes of each label
  std::vector<int64_t> then_;  // the same at the peak, unless at_peak_
  bool at_peak_ = true;        // whether this moment is the peak's
  int64_t additions_ = 0;
  int64_t peak_at_ = 0;  // additions_ at the peak
  int64_t total_ = 0;
  int64_t held_ = 0;
  int64_t peak_ = 0;
  std::vector<int64_t> phase_peaks_;
};

}  // namespace lockstep
