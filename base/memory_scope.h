// MemoryScope and ModuleScope: while such an object exists, it states the purpose of the memory that its thread
// allocates.
//
// Promise: a scope costs some tens of nanoseconds at most, whether anybody measures memory or not. The measurement
// (observe/memory_watch.h) calls Now() at each allocation.
//
// A model names its modules by ranges (base/tensor/range.h), which are ModuleScopes. If activation checkpointing
// computes a module a second time in the backward pass, the thread of the backward pass makes a ModuleScope for the
// module, too.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The purposes that memory is allocated for.
enum class MemoryOwner {
  kUnknown,     // no MemoryScope exists
  kParameters,  // parameters, buffers, and the 16-bit copies of weights
  kGradients,   // the buckets of the gradients
  kMoments,     // the optimizer's moments, and the average of the weights
  kActivations,
  kTemporaries,  // intermediate results of backward and update, such as activations' gradients
  kSamples,      // micro-batches on their way to the model
  kWorkspaces,   // workspaces of cuBLAS and cuDNN, also during the search for their plans
  kCheckpoint,   // the copies that a checkpoint is written from
  kGraphs,       // memory in CUDA graphs' pools that none of the other owners uses
  kEvaluation,
  kOther,
};
inline constexpr int kMemoryOwners = static_cast<int>(MemoryOwner::kOther) + 1;

// Returns the owner's name in the log: "parameters", "gradients", ...
std::string_view NameOf(MemoryOwner owner);

// States the purpose of the memory that this thread allocates. If scopes are nested, the innermost applies.
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

// Names the module whose forward pass this thread runs. A nested scope names a submodule of the outer scope's module.
class ModuleScope {
 public:
  explicit ModuleScope(std::string_view name);
  // Ends the scope. The scopes of a thread may end in any order, but each on the thread on which it began.
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

  // Returns the names of this thread's scopes, the outermost first, with dots between them: "blocks.3.attention".
  // Returns an empty text if there is no scope.
  static std::string Now();
};

}  // namespace lockstep
