#include "base/memory_scope.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

thread_local MemoryOwner owner_now = MemoryOwner::kUnknown;
thread_local std::vector<std::pair<const ModuleScope*, std::string>> modules_now;

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

ModuleScope::ModuleScope(std::string_view name) { modules_now.emplace_back(this, name); }

ModuleScope::~ModuleScope() {
  const auto last = std::ranges::find(modules_now.rbegin(), modules_now.rend(), this,
                                      &std::pair<const ModuleScope*, std::string>::first);
  if (last != modules_now.rend()) modules_now.erase(std::next(last).base());
}

std::string ModuleScope::Now() {
  std::string path;
  for (const auto& [scope, name] : modules_now) {
    if (!path.empty()) path += '.';
    path += name;
  }
  return path;
}

}  // namespace lockstep
