// MemoryReport: the peak of the memory that tensors take on a rank's device, and what this memory is for.
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
  int64_t step = 0;  // the step in which the memory was measured, from 1
  bool on_gpu = false;
  bool is_foretold = false;  // whether the figures are an estimate made before training
  // On a GPU: the allocator's peak plus the memory of CUDA graphs' pools that this peak does not include. On a CPU: the
  // sum of the owners.
  int64_t peak_bytes = 0;
  // On a GPU: the memory that the allocator has reserved, and the size of the GPU's memory. On a CPU both are unknown:
  // -1.
  int64_t reserved_bytes = -1;
  int64_t device_bytes = -1;
  // The peak_bytes that was estimated before training; -1: unknown.
  int64_t foretold_bytes = -1;
  // The parts of the peak, the largest first. On a CPU the parts add up to peak_bytes; on a GPU a part may be missing.
  std::vector<MemoryPart> owners{};
  // The peak in each phase of the step, in the order of the phases.
  std::vector<MemoryPart> phases{};
  // The activations at the peak by module, the largest first.
  std::vector<MemoryPart> blocks{};
};

// Facts about a step that the step's MemoryTally does not have.
struct MemoryFacts {
  int64_t step = 0;
  bool on_gpu = false;
  int64_t allocated_peak = 0;  // the allocator's peak on a GPU; not used on a CPU
  int64_t reserved_bytes = -1;
  int64_t device_bytes = -1;
  int64_t pool_bytes = 0;  // the memory of the CUDA graphs' pools after the step
  bool captured = false;   // whether the step captured a graph, whose tensors lie in a pool
};

// Returns the report on a measured step.
MemoryReport ReportOf(const MemoryTally& tally, const std::vector<std::string_view>& phases,
                      const MemoryFacts& facts);

// Returns the report on an evaluation on a GPU. `tally` has the memory that is allocated between steps. The memory of
// the CUDA graphs' pools counts as kGraphs, and all other memory as kEvaluation.
MemoryReport ReportOfEvaluation(const MemoryTally& tally, const MemoryFacts& facts);

// Returns the report as one line: "memory: at most 3.2 GiB (foretold: 3.1 GiB) of 79.1 GiB, in backward: activations
// 2.1 GiB (most in blocks.3: 205 MiB), parameters 512 MiB".
std::string TextOf(const MemoryReport& report);

// Returns the number of bytes as text, for example "1.5 GiB", "12 MiB" or "3 KiB".
std::string BytesText(int64_t bytes);

}  // namespace lockstep
