// The places where LibTorch's C++ interface differs between versions 2.10, 2.11 and 2.15. Each function compiles against
// all of them: it takes what the version's headers declare. No other file needs to know LibTorch's version.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {

// Owns the node of autograd that adds up the gradient of a parameter. This is a std::shared_ptr in LibTorch 2.10 and
// 2.11, and a c10::intrusive_ptr in 2.15.
using GradientAccumulator =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

// A workspace of cuBLAS or cuBLASLt.
struct WorkspaceMemory {
  const void* address;
  size_t bytes;
};

// Returns an entry of at::cuda::WorkspaceMapWithMutex. Before LibTorch 2.15 an entry has no size of its own:
// `usual_bytes` is the size of each.
inline WorkspaceMemory WorkspaceOf(const at::DataPtr& entry, size_t usual_bytes) {
  return {entry.get(), usual_bytes};
}
inline WorkspaceMemory WorkspaceOf(const std::pair<at::DataPtr, size_t>& entry,
                                   size_t /*usual_bytes*/) {
  return {entry.first.get(), entry.second};
}

// Returns the state of CUDA's caching allocator, a SnapshotInfo, without the history of its calls. `Allocator` is
// c10::cuda::CUDACachingAllocator::CUDAAllocator. LibTorch 2.10 always takes the history along.
template <typename Allocator>
auto SnapshotOf(Allocator& allocator) {
  if constexpr (requires { allocator.snapshot(c10::MempoolId_t{0, 0}, false); }) {
    return allocator.snapshot({0, 0}, /*include_traces=*/false);
  } else {
    return allocator.snapshot();
  }
}

namespace internal {

// `State` is at::CUDAGeneratorState: the members that a version lacks may be named only in a template.
template <typename State>
void ContinueInGraph(State& state, at::TensorBase seed, at::TensorBase offset,
                     uint64_t offset_in_graph) {
  if constexpr (requires { state.capture_states_; }) {
    // The state has a part for each graph that is being captured. The functions that make such a part are not exported.
    cudaStreamCaptureStatus status;
    typename decltype(state.capture_states_)::key_type graph;
    C10_CUDA_CHECK(cudaStreamGetCaptureInfo(c10::cuda::getCurrentCUDAStream(), &status, &graph));
    using Part = typename decltype(state.capture_states_)::mapped_type::element_type;
    auto part = c10::make_intrusive<Part>();
    part->rng_state_seed_extragraph_ = std::move(seed);
    part->rng_state_offset_extragraph_ = std::move(offset);
    part->offset_intragraph_ = offset_in_graph;
    state.capture_states_[graph] = std::move(part);
  } else {
    state.capturing_ = true;
    state.seed_extragraph_ = std::move(seed);
    state.offset_extragraph_ = std::move(offset);
    state.offset_intragraph_ = offset_in_graph;
  }
}

}  // namespace internal

// Returns a state that draws the same random numbers as a generator from which `drawn` was taken on `device`. If `drawn`
// was taken while a graph was captured, the current stream must be capturing that graph. Each replay then reads seed
// and offset from the device memory to which it has written them.
inline c10::intrusive_ptr<at::CUDAGeneratorState> StateThatDraws(const at::PhiloxCudaState& drawn,
                                                                 at::Device device) {
  auto state = c10::make_intrusive<at::CUDAGeneratorState>();
  if (drawn.captured_) {
    const auto on_device = [&](int64_t* number) {
      return at::from_blob(number, {1}, at::TensorOptions(device).dtype(at::kLong));
    };
    internal::ContinueInGraph(*state, on_device(drawn.seed_.ptr), on_device(drawn.offset_.ptr),
                              drawn.offset_intragraph_);
  } else {
    state->seed_ = drawn.seed_.val;
    state->philox_offset_per_thread_ = drawn.offset_.val;
  }
  return state;
}

}  // namespace lockstep
