// StepClock: how long steps take, and how the time divides among their phases. If there is a device, it is the
// device's time, so that nothing waits in order to be measured.
//
// Invariants:
//   1. A step is cut into phases by Mark(). What the device does from one mark to the next belongs to the
//      first one's phase.
//   2. Marks may be captured in a CUDA graph; each replay then sets them anew. So phases are read after
//      a step, by ReadPhases(), which waits for the device, and not of every step.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

// kExchange: waiting for other ranks. What a model's BatchNorm or a norm over sharded gradients exchange
// is not among it.
enum class Phase { kForward, kBackward, kExchange, kUpdate, kRest };
inline constexpr std::array kPhases{Phase::kForward, Phase::kBackward, Phase::kExchange,
                                    Phase::kUpdate, Phase::kRest};

std::string_view NameOf(Phase phase);

class StepClock {
 public:
  explicit StepClock(at::Device device);
  ~StepClock();

  // A step begins, and the one before it ends.
  void BeginStep();

  // The step under way enters `phase`.
  void Mark(Phase phase);

  // Adds up the phases of the step that has just ended.
  void ReadPhases();

  // Milliseconds of each step that has ended. Waits for the device.
  std::vector<double> StepTimes() const;

  // Milliseconds a step that ReadPhases() read, the mean.
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
  std::vector<Entry> marks_;  // of the step under way, or of the graph
  bool captured_ = false;     // marks_ are the graph's
  std::array<double, kPhases.size()> phase_ms_{};
  int phase_steps_ = 0;
};

}  // namespace lockstep
