#include "observe/verdict/seconds_report.h"

namespace lockstep {

std::string_view NameOf(Loss loss) {
  switch (loss) {
    case Loss::kReading:
      return "reading";
    case Loss::kDecoding:
      return "decoding";
    case Loss::kCopying:
      return "copying";
    case Loss::kLaunching:
      return "launching";
    case Loss::kCommunication:
      return "communication";
    case Loss::kSlowRank:
      return "slow_rank";
    case Loss::kCores:
      return "cores";
    case Loss::kEvaluation:
      return "evaluation";
    case Loss::kCheckpoints:
      return "checkpoints";
    case Loss::kMemory:
      return "memory";
    case Loss::kRestarts:
      return "restarts";
    case Loss::kThrottling:
      return "throttling";
    case Loss::kOther:
      return "other";
  }
  return "";
}

std::string_view WordsOf(Loss loss) {
  switch (loss) {
    case Loss::kReading:
      return "reading samples";
    case Loss::kDecoding:
      return "decoding samples";
    case Loss::kCopying:
      return "copying samples to the device";
    case Loss::kLaunching:
      return "launching the device's work";
    case Loss::kCommunication:
      return "communication";
    case Loss::kSlowRank:
      return "a slow rank";
    case Loss::kCores:
      return "waiting for a core";
    case Loss::kEvaluation:
      return "evaluation";
    case Loss::kCheckpoints:
      return "checkpoints";
    case Loss::kMemory:
      return "steps that ran out of memory";
    case Loss::kRestarts:
      return "restarts";
    case Loss::kThrottling:
      return "throttled clocks";
    case Loss::kOther:
      break;
  }
  return "";
}

}  // namespace lockstep
