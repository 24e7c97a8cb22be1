#include "observe/profile/graph_nodes.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <cuda.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "observe/flops.h"
#include "observe/profile/trace_places.h"

namespace lockstep {
namespace {

// Returns a function of the CUDA driver, which is looked up because the driver library is not linked; null if the
// driver is too old for the function.
template <typename Function>
Function OfDriver(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &result) !=
          cudaSuccess ||
      result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Function>(function);
}

std::string Demangled(const char* name) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 ? demangled : name;
  std::free(demangled);
  return text;
}

std::string KernelName(cudaGraphNode_t node) {
  static const auto params_of = OfDriver<CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>(
      "cuGraphKernelNodeGetParams", 12000);
  static const auto function_name =
      OfDriver<CUresult (*)(const char**, CUfunction)>("cuFuncGetName", 12030);
  static const auto kernel_name =
      OfDriver<CUresult (*)(const char**, CUkernel)>("cuKernelGetName", 12030);
  CUDA_KERNEL_NODE_PARAMS params{};
  const char* name = nullptr;
  if (params_of == nullptr || params_of(node, &params) != CUDA_SUCCESS) return {};
  const bool found =
      params.func != nullptr
          ? function_name != nullptr && function_name(&name, params.func) == CUDA_SUCCESS
          : kernel_name != nullptr && kernel_name(&name, params.kern) == CUDA_SUCCESS;
  return found && name != nullptr ? Demangled(name) : std::string();
}

}  // namespace

struct GraphNodes::Watch {
  // A range of the forward pass, as an interval of sequence numbers.
  struct Forward {
    int64_t begin = 0, end = 0;  // autograd's sequence numbers
    std::string path;            // the range's path without the phase
  };

  explicit Watch(cudaStream_t s) : stream(s) {}

  void Enter(const std::string& name) {
    const std::lock_guard lock(mutex);
    NoteNodes();
    path.push_back(name);
    begins.push_back(static_cast<int64_t>(at::sequence_number::peek()));
  }

  void Leave() {
    const std::lock_guard lock(mutex);
    NoteNodes();
    if (!IsTracePhase(path.back())) {
      forwards.push_back(
          {begins.back(), static_cast<int64_t>(at::sequence_number::peek()), ModulePath()});
    }
    path.pop_back();
    begins.pop_back();
  }

  void EnterBackward(int64_t sequence) {
    const std::lock_guard lock(mutex);
    NoteNodes();
    backward.push_back(PathOf(sequence));
  }

  void LeaveBackward() {
    const std::lock_guard lock(mutex);
    NoteNodes();
    backward.pop_back();
  }

  // Notes that an operation with a known number of FLOPs begins.
  void EnterOperation(int64_t operation_flops) {
    const std::lock_guard lock(mutex);
    NoteNodes();
    flops = operation_flops;
    operation_begin = nodes.size();
  }

  // Sets the FLOPs of the node if the operation has only one node. If an operation has several nodes, it is not known
  // how its FLOPs are divided among them.
  void LeaveOperation() {
    const std::lock_guard lock(mutex);
    NoteNodes();
    if (nodes.size() == operation_begin + 1) nodes.back().flops = flops;
  }

  // Adds the nodes that were added to the graph since the last call. The caller must hold the mutex.
  void NoteNodes() {
    cudaStreamCaptureStatus status{};
    cudaGraph_t graph = nullptr;
    if (cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph) != cudaSuccess ||
        status != cudaStreamCaptureStatusActive) {
      cudaGetLastError();
      return;
    }
    size_t count = 0;
    if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess || count == all.size()) return;
    const size_t before = all.size();
    const cudaGraphNode_t last = all.empty() ? nullptr : all.back();
    all.resize(count);
    cudaGraphGetNodes(graph, all.data(), &count);
    // All known drivers put new nodes at the end of the list. If a driver puts them elsewhere, all nodes are checked.
    const bool in_order = before == 0 || all[before - 1] == last;
    for (size_t i = in_order ? before : 0; i < all.size(); ++i) {
      if (seen.insert(all[i]).second) Note(all[i]);
    }
  }

  void Note(cudaGraphNode_t node) {
    cudaGraphNodeType type{};
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess) return;
    GraphNode found{.name = {}, .path = CurrentPath(), .flops = 0};
    if (type == cudaGraphNodeTypeKernel) {
      found.name = KernelName(node);
    } else if (type == cudaGraphNodeTypeMemcpy) {
      found.name = "Memcpy";
    } else if (type == cudaGraphNodeTypeMemset) {
      found.name = "Memset";
    } else {
      return;
    }
    nodes.push_back(std::move(found));
  }

  std::string CurrentPath() const {
    std::string joined;
    for (const std::string& name : path) joined += (joined.empty() ? "" : "/") + name;
    // Forward operations that a backward pass computes again (activation checkpointing) have ranges of their own, which
    // `joined` already contains.
    if (backward.empty() || backward.back().empty() || !ModulePath().empty()) return joined;
    return joined + "/" + backward.back();
  }

  std::string ModulePath() const {
    std::string joined;
    for (const std::string& name : path) {
      if (!IsTracePhase(name)) joined += (joined.empty() ? "" : "/") + name;
    }
    return joined;
  }

  // Returns the path of the innermost range around the forward operation with this sequence number.
  std::string PathOf(int64_t sequence) const {
    const Forward* innermost = nullptr;
    for (const Forward& forward : forwards) {
      if (sequence < forward.begin || sequence >= forward.end) continue;
      if (innermost == nullptr || forward.end - forward.begin < innermost->end - innermost->begin) {
        innermost = &forward;
      }
    }
    return innermost == nullptr ? std::string() : innermost->path;
  }

  const cudaStream_t stream;
  std::mutex mutex;
  std::vector<std::string> path;
  std::vector<int64_t> begins;  // the sequence numbers at which the ranges of `path` began
  std::vector<Forward> forwards;
  std::vector<std::string> backward;
  int64_t flops = 0;           // the FLOPs of the current operation
  size_t operation_begin = 0;  // the number of nodes before the current operation
  std::vector<cudaGraphNode_t> all;
  std::unordered_set<cudaGraphNode_t> seen;
  std::vector<GraphNode> nodes;

  static std::weak_ptr<Watch> active;
};

std::weak_ptr<GraphNodes::Watch> GraphNodes::Watch::active;

namespace {

// A callback keeps this object until the end of the range or operation. The watch may be destroyed by then, because a
// capture that fails ends before its ranges and operations do.
struct Context final : at::ObserverContext {
  explicit Context(std::weak_ptr<GraphNodes::Watch> w) : watch(std::move(w)) {}
  std::weak_ptr<GraphNodes::Watch> watch;
};

std::unique_ptr<at::ObserverContext> Enter(const at::RecordFunction& call) {
  const std::shared_ptr<GraphNodes::Watch> watch = GraphNodes::Watch::active.lock();
  if (watch == nullptr) return nullptr;
  if (call.scope() == at::RecordScope::USER_SCOPE) {
    watch->Enter(call.name());
  } else if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    watch->EnterBackward(call.seqNr());
  } else if (const int64_t flops = FlopsOf(call); flops > 0) {
    watch->EnterOperation(flops);
  } else {
    return nullptr;
  }
  return std::make_unique<Context>(watch);
}

void Leave(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto watch = static_cast<Context*>(context)->watch.lock();
  if (watch == nullptr) return;
  if (call.scope() == at::RecordScope::USER_SCOPE) {
    watch->Leave();
  } else if (call.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    watch->LeaveBackward();
  } else {
    watch->LeaveOperation();
  }
}

}  // namespace

GraphNodes::GraphNodes(cudaStream_t stream) : watch_(std::make_shared<Watch>(stream)) {
  Watch::active = watch_;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Enter, Leave)
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE,
                   at::RecordScope::BACKWARD_FUNCTION}));
}

GraphNodes::~GraphNodes() {
  at::removeCallback(handle_);
  Watch::active.reset();
}

std::vector<GraphNode> GraphNodes::Take() {
  const std::lock_guard lock(watch_->mutex);
  watch_->NoteNodes();
  return std::move(watch_->nodes);
}

}  // namespace lockstep
