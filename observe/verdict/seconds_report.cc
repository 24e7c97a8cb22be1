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

}  // namespace lockstep
