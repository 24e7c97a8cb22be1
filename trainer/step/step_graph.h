// StepGraphs: captures the step as a CUDA graph for each batch shape, and replays these graphs.
//
// Promise: replaying a graph computes the same results as calling the captured function. A replay continues with the
// random numbers after those of the previous step, as an eager step does.
//
// Invariants:
//   1. There are at most kMost graphs. If there are kMost graphs, a new graph replaces the graph whose last use is the
//      longest ago. All graphs share one memory pool, because only one graph runs at a time. Tensors whose values must
//      survive a step must therefore be allocated outside of a capture.
//   2. A capture runs no work on the device and does not advance the random number generators. A capture that fails
//      adds no graph and leaves the random number generators as they were.
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

// Releases the unused blocks that LibTorch's caching allocator holds on the GPU. Does nothing on a CPU.
void EmptyCache(at::Device device);

class StepGraphs {
 public:
  static constexpr size_t kMost = 8;

  // Keeps a reference to `communicator`, which runs the collectives that the graphs capture.
  StepGraphs(at::Device device, Communicator& communicator);
  ~StepGraphs();

  bool empty() const { return graphs_.empty(); }
  bool Has(int64_t key) const;

  // Captures the work that `step` enqueues on the current stream as the graph of `key`. The current stream must not be
  // the default stream. The work of `step` must have run eagerly before, so that everything that it needs is set up.
  void Capture(int64_t key, const std::function<void()>& step);

  // Enqueues the graph of `key` on the current stream. Has(key) must be true.
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
