#include "trainer/step/step_graph.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/capturing.h"
#include "base/tensor/foretold_memory.h"
#include "base/tensor/range.h"
#include "observe/profile/graph_nodes.h"

namespace lockstep {

void EmptyCache(at::Device device) {
  if (device.is_meta()) ForetoldMemory::EmptyCache();
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
}

struct StepGraphs::Graph {
  std::string RangeName() const { return fmt::format("{}{}", kGraphRange, number); }

  int64_t key = 0;
  int64_t number = 0;  // number of the capture, from 1; distinguishes graphs of one key in a trace
  std::optional<at::cuda::CUDAGraph> graph;  // empty on a foretold GPU
  std::vector<GraphNode> nodes;
};

StepGraphs::StepGraphs(at::Device device, Communicator& communicator)
    : device_(device),
      communicator_(communicator),
      label_(communicator.MakeLabel("the step's graph")) {}

StepGraphs::~StepGraphs() {
  // The destructor waits, because a graph may still be running. Device errors are ignored here; the code that reads the
  // step's results reports them.
  if (!graphs_.empty() && device_.is_cuda()) {
    cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device_.index()).stream());
  }
}

bool StepGraphs::Has(int64_t key) const {
  return std::any_of(graphs_.begin(), graphs_.end(),
                     [&](const auto& graph) { return graph->key == key; });
}

void StepGraphs::Capture(int64_t key, const std::function<void()>& step) {
  if (device_.is_meta()) {
    EmptyCache(device_);
    ForetoldMemory::AsGraph(step);
    graphs_.push_front(std::make_unique<Graph>());
    graphs_.front()->key = key;
    return;
  }
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_.index());
  if (graphs_.size() == kMost) {
    stream.synchronize();
    graphs_.pop_back();
  }
  const at::cuda::MempoolId_t pool =
      graphs_.empty() ? at::cuda::graph_pool_handle() : graphs_.front()->graph->pool();
  // The graph's pool needs as much memory as the step used without a graph, so unused cached blocks are freed first.
  stream.synchronize();
  EmptyCache(device_);

  const at::Generator& random = at::cuda::detail::getDefaultCUDAGenerator(device_.index());
  const at::Generator before = random.clone();
  auto graph = std::make_unique<Graph>();
  graph->key = key;
  graph->number = ++captures_;
  graph->graph.emplace();
  graph->graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  bool stepped = false;
  try {
    GraphNodes nodes(stream.stream());
    step();
    graph->nodes = nodes.Take();
    stepped = true;
    graph->graph->capture_end();
  } catch (...) {
    if (!stepped) {  // ends the capture, as capture_end() would have
      cudaGraph_t unfinished = nullptr;
      if (IsCapturing(device_)) cudaStreamEndCapture(stream.stream(), &unfinished);
      if (unfinished != nullptr) cudaGraphDestroy(unfinished);
      cudaGetLastError();
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool);
      c10::cuda::CUDACachingAllocator::releasePool(device_.index(), pool);
    }
    at::check_generator<at::CUDAGeneratorImpl>(random)->graphsafe_set_state(
        before.getIntrusivePtr());
    throw;
  }
  graphs_.push_front(std::move(graph));
}

void StepGraphs::Replay(int64_t key) {
  const auto graph = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const auto& candidate) { return candidate->key == key; });
  graphs_.splice(graphs_.begin(), graphs_, graph);
  if (device_.is_meta()) return;
  const Range range(graphs_.front()->RangeName(), Range::Of::kStep);
  communicator_.Replay([&] { graphs_.front()->graph->replay(); }, label_);
}

NodesOfGraphs StepGraphs::nodes() const {
  NodesOfGraphs nodes;
  for (const auto& graph : graphs_) nodes.emplace(graph->RangeName(), graph->nodes);
  return nodes;
}

}  // namespace lockstep
