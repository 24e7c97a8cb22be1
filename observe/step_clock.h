// StepClock: measures how long steps and their phases take. On a GPU the times are measured with the GPU's own clock,
// so no work has to wait for the measurement.
//
// Invariants:
//   1. Calls of Mark() cut a step into phases. The device's work between two marks belongs to the phase of the first
//      mark.
//   2. Marks may be captured in a CUDA graph. Each replay of the graph then overwrites the times of the marks, so the
//      caller must call ReadPhases() between a step whose times it needs and the next replay. ReadPhases() waits for
//      the device, so calling it after every step would slow down training.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

// The phases of a step. kExchange is the wait for other ranks. The collectives of a model's BatchNorm, and of a norm
// over sharded gradients, do not count as kExchange.
enum class Phase { kForward, kBackward, kExchange, kUpdate, kRest };
inline constexpr std::array kPhases{Phase::kForward, Phase::kBackward, Phase::kExchange,
                                    Phase::kUpdate, Phase::kRest};

std::string_view NameOf(Phase phase);
// Returns the names of kPhases.
std::vector<std::string_view> PhaseNames();

class StepClock {
 public:
  explicit StepClock(at::Device device);
  ~StepClock();

  // Begins a step, and ends the previous step.
  void BeginStep();

  // Begins `phase` in the current step, and ends the phase before it.
  void Mark(Phase phase);

  // Adds the times of the phases of the current step, whose work must have been enqueued, to the sums for PhaseTimes().
  // Must be called before the next BeginStep(). Waits for the device.
  void ReadPhases();

  // Returns the time of each step that has ended, in milliseconds. Waits for the device.
  std::vector<double> StepTimes() const;

  // Returns the mean time of each phase, in milliseconds per step, over the steps that ReadPhases() has read.
  std::array<double, kPhases.size()> PhaseTimes() const;

 private:
  struct Moment;
  struct Entry {
    Phase phase;
    std::unique_ptr<Moment> begin;
  };

  static double Between(const Moment& begin, const Moment& end);

  at::Device device_;
  std::vector<std::unique_ptr<Moment>> steps_;
  std::vector<Entry> marks_;  // the marks of the current step, or of the captured graph
  bool captured_ = false;     // whether marks_ belong to a captured graph
  std::array<double, kPhases.size()> phase_ms_{};
  int phase_steps_ = 0;
};

}  // namespace lockstep
