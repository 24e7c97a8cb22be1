// MemoryScope and ModuleScope: say, while they live, what the memory is for that this thread allocates.
//
// Promise: a scope costs some tens of nanoseconds at most, whether anybody measures memory or not. The measurement
// (observe/memory_watch.h) asks Now() at each allocation.
//
// A model names its modules by ranges (base/tensor/range.h), which are ModuleScopes. Backward passes that compute a
// module again (activation checkpointing) then name it on their own thread, too.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The purposes that memory is allocated for.
enum class MemoryOwner {
  kUnknown,     // no scope says it
  kParameters,  // also buffers, and the weights' copies in 16 bits
  kGradients,   // the buckets of the gradients
  kMoments,     // the optimizer's moments, and the average of the weights
  kActivations,
  kTemporaries,  // what the backward pass and the update compute with, such as the activations' gradients
  kSamples,     // micro-batches on their way to the model
  kWorkspaces,  // of cuBLAS, cuDNN and the search for their plans
  kCheckpoint,  // the copies that a checkpoint is written from
  kGraphs,      // what the CUDA graphs' pools hold besides these tensors
  kEvaluation,
  kOther,
};
inline constexpr int kMemoryOwners = static_cast<int>(MemoryOwner::kOther) + 1;

// Returns the owner's name in the log: "parameters", "gradients", ...
std::string_view NameOf(MemoryOwner owner);

// Says what this thread's memory is for. Scopes nest: the innermost counts.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryOwner owner);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  // Returns the owner that this thread's innermost scope names; kUnknown if there is none.
  static MemoryOwner Now();

 private:
  MemoryOwner before_;
};

// Names the module whose forward pass this thread makes. A scope within another one names a part of it.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name);
  // Scopes may end in any order, on the thread on which they began.
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  // Returns the names of this thread's scopes, the outermost first, with dots between them: "blocks.3.attention". Empty
  // if there is none.
  static std::string Now();
};

}  // namespace lockstep
