// SecondsReport: says what a run has spent its time on so far, and how to regain most of the lost time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The causes by which a run loses time.
enum class Loss {
  kReading,        // waiting for the bytes of samples
  kDecoding,       // waiting for the decoding and augmentation of samples
  kCopying,        // waiting for the copy of samples to the device
  kLaunching,      // the device is idle because the host has not launched work yet
  kCommunication,  // the part of the exchange with other ranks that the backward pass does not hide
  kSlowRank,       // one rank computes more slowly than the others
  kCores,          // the training thread waits for a core
  kEvaluation,
  kCheckpoints,
  kMemory,      // steps that ran out of memory and were repeated
  kRestarts,    // the time from a failure until the failed step is made again
  kThrottling,  // the GPU's clocks are lowered by heat or by its power supply
  kOther,
};
inline constexpr std::array kLosses{
    Loss::kReading,  Loss::kDecoding,   Loss::kCopying,    Loss::kLaunching,   Loss::kCommunication,
    Loss::kSlowRank, Loss::kCores,      Loss::kEvaluation, Loss::kCheckpoints, Loss::kMemory,
    Loss::kRestarts, Loss::kThrottling, Loss::kOther};

// Returns the loss's name in the log, in Prometheus and in TensorBoard: "reading", "decoding", ...
std::string_view NameOf(Loss loss);

// Returns the loss in words that complete "lost 9 % to ...".
std::string_view WordsOf(Loss loss);

// The statement of a rule (observe/verdict/rules.h) about a run.
struct RunFinding {
  std::string rule;    // the rule's name, for example "memory_grows"
  std::string words;   // what was measured and what it means
  std::string remedy;  // what the user can do about it
};

struct SecondsReport {
  int64_t step = 0;   // the number of optimizer steps done
  int64_t steps = 0;  // the number of steps that this report covers
  // The seconds since the first of these steps began, plus the time lost to a restart: the sum of ideal_s and all of
  // lost_s.
  double wall_s = 0;
  double ideal_s = 0;  // the seconds that these steps would take at this run's best speed
  std::array<double, kLosses.size()> lost_s{};
  int slow_rank = -1;       // the rank for which the other ranks wait; -1: none
  double flops_share = -1;  // an ideal step's FLOP/s as a fraction of the GPU's peak; -1: unknown
  // The fraction of the time in which a kernel ran on the GPUs; -1: unknown.
  double busy_share = -1;
  double joules_per_sample = -1;  // the energy that the machine's GPUs took per sample; -1: unknown
  std::optional<Loss> cause;  // the greatest loss except kOther, if that loss is worth reporting
  std::string verdict;        // how much time is lost, and to which cause; empty: no cause
  std::string remedy;         // the config fields, or the other means, that regain the lost time
  std::vector<RunFinding> findings;

  double lost(Loss loss) const { return lost_s[static_cast<size_t>(loss)]; }
  double ideal_share() const { return wall_s > 0 ? ideal_s / wall_s : 1; }
};

}  // namespace lockstep
