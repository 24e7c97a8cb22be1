// SecondsReport: where the seconds of a run went so far, and what would give most of them back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The causes to which a run can lose time.
enum class Loss {
  kReading,        // waiting for the bytes of samples
  kDecoding,       // waiting for the decoding and augmentation of samples
  kCopying,        // waiting for the copy of samples to the device
  kLaunching,      // the device waits for the host to launch its work
  kCommunication,  // the part of the exchange with other ranks that the backward pass does not hide
  kSlowRank,       // one rank computes more slowly than the others
  kCores,          // the training thread waits for a core
  kEvaluation,
  kCheckpoints,
  kMemory,      // steps that were repeated with less memory
  kRestarts,    // from a failure until its step is made again
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

// A rule's (observe/verdict/rules.h) statement about a run.
struct RunFinding {
  std::string rule;    // the rule's name, for example "memory_grows"
  std::string words;   // what was measured and what it means
  std::string remedy;  // what the user can do about it
};

struct SecondsReport {
  int64_t step = 0;   // the number of optimizer steps done
  int64_t steps = 0;  // how many of them this report is about
  double wall_s =
      0;  // the seconds since the first of them began; ideal_s and all of lost_s add up to it
  double ideal_s =
      0;  // the seconds that these steps would take at the speed that this run can reach
  std::array<double, kLosses.size()> lost_s{};
  int slow_rank = -1;       // the rank for which the others wait; -1: none
  double flops_share = -1;  // an ideal step's FLOP/s as a fraction of the GPU's peak; -1: unknown
  double busy_share =
      -1;  // the fraction of the time in which a kernel ran on the GPUs; -1: unknown
  double joules_per_sample = -1;  // the energy that the machine's GPUs took per sample; -1: unknown
  std::optional<Loss>
      cause;            // the greatest loss that has a name, if it is great enough to be reported
  std::string verdict;  // what is lost and to what, in words; empty: nothing great enough
  std::string remedy;   // the config fields that mend it, or what else does
  std::vector<RunFinding> findings;

  double lost(Loss loss) const { return lost_s[static_cast<size_t>(loss)]; }
  double ideal_share() const { return wall_s > 0 ? ideal_s / wall_s : 1; }
};

}  // namespace lockstep
