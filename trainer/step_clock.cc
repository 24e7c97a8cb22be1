#include "trainer/step_clock.h"

#include <ATen/cuda/CUDAEvent.h>

#include <chrono>

namespace lockstep {

struct StepClock::Entry {
  Kind kind;
  std::chrono::steady_clock::time_point on_host;
  std::unique_ptr<at::cuda::CUDAEvent> on_device;
};

StepClock::StepClock(at::Device device) : on_gpu_(device.is_cuda()) {}

StepClock::~StepClock() = default;

void StepClock::BeginStep() { Mark(kStepBegins); }

void StepClock::Mark(Kind kind) {
  Entry entry{.kind = kind, .on_host = std::chrono::steady_clock::now(), .on_device = nullptr};
  if (on_gpu_) {
    entry.on_device = std::make_unique<at::cuda::CUDAEvent>(cudaEventDefault);
    entry.on_device->record();
  }
  entries_.push_back(std::move(entry));
}

StepTimes StepClock::Times() const {
  const auto between = [&](const Entry& begin, const Entry& end) {
    if (on_gpu_) {
      end.on_device->synchronize();
      return static_cast<double>(begin.on_device->elapsed_time(*end.on_device));
    }
    return std::chrono::duration<double, std::milli>(end.on_host - begin.on_host).count();
  };
  StepTimes times;
  const Entry* step = nullptr;
  const Entry* wait = nullptr;
  double waited = 0;
  for (const Entry& entry : entries_) {
    if (entry.kind == kWaitBegins) wait = &entry;
    if (entry.kind == kWaitEnds) waited += between(*wait, entry);
    if (entry.kind != kStepBegins) continue;
    if (step != nullptr) {
      times.step_ms.push_back(between(*step, entry));
      times.wait_ms.push_back(waited);
    }
    step = &entry;
    waited = 0;
  }
  return times;
}

}  // namespace lockstep
