#include "observe/hidden_syncs.h"

#include <ATen/record_function.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

// The names of the operations that this thread is running, the outermost first. The model calls the outermost
// operation.
thread_local std::vector<std::string> operations;
thread_local bool in_forward_pass = false;

class SyncWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") == std::string::npos) {
      others_.process(warning);
      return;
    }
    if (!in_forward_pass) return;
    const std::string name = operations.empty() ? "a call of CUDA" : operations.front();
    if (std::ranges::find(found_, name) == found_.end()) found_.push_back(name);
  }

  std::vector<std::string> Take() { return std::move(found_); }

 private:
  c10::WarningHandler others_;
  std::vector<std::string> found_;
};

class SyncDebugGuard {
 public:
  SyncDebugGuard() {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
  }
  ~SyncDebugGuard() { c10::cuda::warning_state().set_sync_debug_mode(before_); }
  SyncDebugGuard(const SyncDebugGuard&) = delete;
  SyncDebugGuard& operator=(const SyncDebugGuard&) = delete;

 private:
  c10::cuda::SyncDebugMode before_ = c10::cuda::warning_state().get_sync_debug_mode();
};

class OperationNames {
 public:
  OperationNames()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(
                [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                  operations.emplace_back(call.name());
                  return nullptr;
                },
                [](const at::RecordFunction&, at::ObserverContext*) {
                  if (!operations.empty()) operations.pop_back();
                })
                .scopes({at::RecordScope::FUNCTION}))) {}
  ~OperationNames() {
    at::removeCallback(handle_);
    operations.clear();
  }
  OperationNames(const OperationNames&) = delete;
  OperationNames& operator=(const OperationNames&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace

ForwardPass::ForwardPass() { in_forward_pass = true; }
ForwardPass::~ForwardPass() { in_forward_pass = false; }

std::vector<std::string> HiddenSyncs(const std::function<void()>& act) {
  SyncWarnings warnings;
  const OperationNames names;
  const c10::WarningUtils::WarningHandlerGuard handles(&warnings);
  const SyncDebugGuard debug;
  act();
  return warnings.Take();
}

}  // namespace lockstep
