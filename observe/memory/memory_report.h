// MemoryReport: the most memory that tensors take on a rank's device, and what it is for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "observe/memory/memory_tally.h"

namespace lockstep {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;

  bool operator==(const MemoryPart&) const = default;
};

struct MemoryReport {
  int64_t step = 0;  // the step in which it was measured, from 1
  bool on_gpu = false;
  bool is_foretold = false;  // rather than measured
  // On a GPU the allocator's own figure, and what the CUDA graphs' pools hold besides it; on a CPU the sum of owners.
  int64_t peak_bytes = 0;
  // On a GPU: what the allocator has reserved, and the GPU's memory. Unknown on a CPU: -1.
  int64_t reserved_bytes = -1;
  int64_t device_bytes = -1;
  // The peak_bytes that was foretold; unknown: -1.
  int64_t foretold_bytes = -1;
  // The parts of the peak, the largest first. The bytes add up to peak_bytes, but for what was missed on a GPU.
  std::vector<MemoryPart> owners{};
  // The most in each phase of the step, in the order of the phases.
  std::vector<MemoryPart> phases{};
  // The activations at the peak by module, the most first.
  std::vector<MemoryPart> blocks{};
};

// Facts that the tally of a step lacks.
struct MemoryFacts {
  int64_t step = 0;
  bool on_gpu = false;
  int64_t allocated_peak = 0;  // the allocator's figure; on a CPU it does not count
  int64_t reserved_bytes = -1;
  int64_t device_bytes = -1;
  int64_t pool_bytes = 0;  // what the CUDA graphs' pools hold after the step
  bool captured = false;   // whether a graph was captured in the step, whose tensors lie in a pool
};

// Reports on a step that was measured.
MemoryReport ReportOf(const MemoryTally& tally, const std::vector<std::string_view>& phases,
                      const MemoryFacts& facts);

// Reports on an evaluation on a GPU, after which `tally` holds what is there between steps. All memory beyond it was
// kEvaluation's.
MemoryReport ReportOfEvaluation(const MemoryTally& tally, const MemoryFacts& facts);

// Returns the report in a line: "memory: at most 3.2 GiB (foretold: 3.1 GiB) of 79.1 GiB, in backward: activations 2.1
// GiB (most in blocks.3: 205 MiB), parameters 512 MiB".
std::string TextOf(const MemoryReport& report);

// Returns "1.5 GiB", "12 MiB" or "3 KiB".
std::string BytesText(int64_t bytes);

}  // namespace lockstep
