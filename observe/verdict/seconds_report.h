// SecondsReport: where the seconds of a run went so far, and what would give most of them back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// What a run can lose time to.
enum class Loss {
  kReading,        // waiting for samples: their bytes
  kDecoding,       // ... their decoding and augmentation
  kCopying,        // ... their copy to the device
  kLaunching,      // the device waits for the host to launch its work
  kCommunication,  // exchange with other ranks that the backward pass does not hide
  kSlowRank,       // one rank computes more slowly than the others
  kCores,          // the training thread waits for a core
  kEvaluation,
  kCheckpoints,
  kMemory,      // steps that were tried again with less memory
  kRestarts,    // from a failure until its step is made again
  kThrottling,  // the GPU's clocks are lowered for power or heat
  kOther,
};
inline constexpr std::array kLosses{
    Loss::kReading,  Loss::kDecoding,   Loss::kCopying,    Loss::kLaunching,   Loss::kCommunication,
    Loss::kSlowRank, Loss::kCores,      Loss::kEvaluation, Loss::kCheckpoints, Loss::kMemory,
    Loss::kRestarts, Loss::kThrottling, Loss::kOther};

// "reading", "decoding", ...: as the log, Prometheus and TensorBoard name it.
std::string_view NameOf(Loss loss);

struct SecondsReport {
  int64_t step = 0;    // optimizer steps done
  int64_t steps = 0;   // of them, those that this report is about
  double wall_s = 0;   // since the first of those began; the sum of what follows
  double ideal_s = 0;  // they would have taken at the speed that this run can do
  std::array<double, kLosses.size()> lost_s{};
  int slow_rank = -1;  // for Loss::kSlowRank; -1: none
  double flops_share =
      -1;  // of what this device can compute at most, of an ideal step; -1: not known
  double seconds_left =
      -1;  // until the run's end, evaluations and checkpoints included; -1: not known yet
  double joules_per_sample = -1;  // of this rank's GPU; -1: not known
  std::optional<Loss> cause;      // the greatest loss that has a name, where it is worth a word
  std::string verdict;            // in words, what is lost and to what; empty: nothing worth a word
  std::string remedy;             // the config fields that mend it, or what else does

  double ideal_share() const { return wall_s > 0 ? ideal_s / wall_s : 1; }
};

}  // namespace lockstep
