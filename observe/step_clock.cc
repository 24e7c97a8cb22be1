#include "observe/step_clock.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <utility>

#include "base/tensor/capturing.h"

namespace lockstep {

// The time at which the object was constructed: on the host's clock, and on the GPU's clock if the device is a GPU.
struct StepClock::Moment {
  explicit Moment(at::Device device) : on_host(std::chrono::steady_clock::now()) {
    if (!device.is_cuda()) return;
    C10_CUDA_CHECK(cudaEventCreate(&on_device));
    // During a capture the event becomes a node of the graph, and each replay records it again.
    C10_CUDA_CHECK(cudaEventRecordWithFlags(
        on_device, c10::cuda::getCurrentCUDAStream(device.index()).stream(),
        IsCapturing(device) ? cudaEventRecordExternal : cudaEventRecordDefault));
  }
  ~Moment() {
    if (on_device != nullptr) cudaEventDestroy(on_device);
  }
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  std::chrono::steady_clock::time_point on_host;
  cudaEvent_t on_device = nullptr;
};

std::string_view NameOf(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kExchange:
      return "exchange";
    case Phase::kUpdate:
      return "update";
    case Phase::kRest:
      return "rest";
  }
  return "unknown";
}

std::vector<std::string_view> PhaseNames() {
  std::vector<std::string_view> names;
  for (const Phase phase : kPhases) names.push_back(NameOf(phase));
  return names;
}

StepClock::StepClock(at::Device device) : device_(device) {}

StepClock::~StepClock() = default;

void StepClock::BeginStep() {
  steps_.push_back(std::make_unique<Moment>(device_));
  if (!captured_) marks_.clear();
}

void StepClock::Mark(Phase phase) {
  const bool capturing = IsCapturing(device_);
  // The times of marks inside and outside of a capture cannot be compared. The old marks are dropped when a capture
  // begins, and when a step runs without a graph after its capture has failed.
  if (std::exchange(captured_, capturing) != capturing) marks_.clear();
  marks_.push_back({phase, std::make_unique<Moment>(device_)});
}

void StepClock::ReadPhases() {
  const Moment end(device_);
  for (size_t i = 0; i < marks_.size(); ++i) {
    const Moment& next = i + 1 < marks_.size() ? *marks_[i + 1].begin : end;
    phase_ms_[static_cast<size_t>(marks_[i].phase)] += Between(*marks_[i].begin, next);
  }
  ++phase_steps_;
}

std::vector<double> StepClock::StepTimes() const {
  std::vector<double> times;
  for (size_t i = 1; i < steps_.size(); ++i) times.push_back(Between(*steps_[i - 1], *steps_[i]));
  return times;
}

std::array<double, kPhases.size()> StepClock::PhaseTimes() const {
  std::array<double, kPhases.size()> times = phase_ms_;
  for (double& time : times) time /= phase_steps_;
  return times;
}

double StepClock::Between(const Moment& begin, const Moment& end) {
  if (begin.on_device == nullptr) {
    return std::chrono::duration<double, std::milli>(end.on_host - begin.on_host).count();
  }
  float ms = 0;
  C10_CUDA_CHECK(cudaEventSynchronize(end.on_device));
  C10_CUDA_CHECK(cudaEventElapsedTime(&ms, begin.on_device, end.on_device));
  return ms;
}

}  // namespace lockstep
