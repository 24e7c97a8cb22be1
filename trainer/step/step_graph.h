// StepGraphs: captures the step as a CUDA graph for each batch shape, and replays these graphs.
//
// Promise: replaying a graph computes what the captured call would have computed. Random numbers continue from the
// previous step, as if the step ran without a graph.
//
// Invariants:
//   1. There are at most kMost graphs. A new graph replaces the one that has not been used for the longest time. All
//      graphs share their memory, because only one runs at a time. Tensors whose values must survive a step must
//      therefore be allocated outside of a capture.
//   2. A capture runs no work on the device and changes no random state. A capture that fails changes nothing.
//
// what can fail -> what the caller sees -> the test that shows it
//   the captured work waits for the device, or does something else that a graph cannot do -> the exception from
//     Capture() -> tests/graph_test.py, test_a_model_that_cannot_be_captured
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "comm/communicator.h"
#include "observe/profile/trace_places.h"

namespace lockstep {

// Returns the free blocks that LibTorch's caching allocator holds to the GPU. Does nothing on a CPU.
void EmptyCache(at::Device device);

class StepGraphs {
 public:
  static constexpr size_t kMost = 8;

  // `communicator` runs the collectives that the graphs capture.
  StepGraphs(at::Device device, Communicator& communicator);
  ~StepGraphs();

  bool empty() const { return graphs_.empty(); }
  bool Has(int64_t key) const;

  // Captures the work that `step` enqueues on the current stream, which must not be the default stream. `step` must
  // have run before, so that everything that it needs is set up.
  void Capture(int64_t key, const std::function<void()>& step);

  // Enqueues the graph of `key`. Has(key) must be true.
  void Replay(int64_t key);

  // Returns the nodes of all graphs, by the names of the ranges in which they are replayed.
  NodesOfGraphs nodes() const;

 private:
  struct Graph;

  at::Device device_;
  Communicator& communicator_;
  Label label_;
  int64_t captures_ = 0;
  std::list<std::unique_ptr<Graph>> graphs_;  // the graph that was used last is first
};

}  // namespace lockstep
