#include "base/memory_scope.h"

#include <utility>

namespace lockstep {
namespace {

thread_local MemoryOwner owner_now = MemoryOwner::kUnknown;
thread_local std::string_view module_now;

}  // namespace

std::string_view NameOf(MemoryOwner owner) {
  switch (owner) {
    case MemoryOwner::kParameters:
      return "parameters";
    case MemoryOwner::kGradients:
      return "gradients";
    case MemoryOwner::kMoments:
      return "moments";
    case MemoryOwner::kActivations:
      return "activations";
    case MemoryOwner::kTemporaries:
      return "temporaries";
    case MemoryOwner::kSamples:
      return "samples";
    case MemoryOwner::kWorkspaces:
      return "workspaces";
    case MemoryOwner::kCheckpoint:
      return "checkpoint";
    case MemoryOwner::kGraphs:
      return "graphs";
    case MemoryOwner::kEvaluation:
      return "evaluation";
    case MemoryOwner::kUnknown:
    case MemoryOwner::kOther:
      break;
  }
  return "other";
}

MemoryScope::MemoryScope(MemoryOwner owner) : before_(std::exchange(owner_now, owner)) {}
MemoryScope::~MemoryScope() { owner_now = before_; }
MemoryOwner MemoryScope::Now() { return owner_now; }

ModuleScope::ModuleScope(std::string_view name) : before_(std::exchange(module_now, name)) {}
ModuleScope::~ModuleScope() { module_now = before_; }
std::string_view ModuleScope::Now() { return module_now; }

}  // namespace lockstep
