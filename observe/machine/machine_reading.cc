#include "observe/machine/machine_reading.h"

#include <nvml.h>

#include <utility>

namespace lockstep {

std::vector<std::string> ThrottleWords(uint64_t reasons) {
  std::vector<std::string> words;
  for (const auto& [bits, word] :
       {std::pair<uint64_t, const char*>(nvmlClocksEventReasonSwPowerCap, "power limit"),
        {nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksEventReasonSwThermalSlowdown,
         "heat"},
        {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power supply"},
        {nvmlClocksThrottleReasonHwSlowdown, "hardware protection"},
        {nvmlClocksEventReasonApplicationsClocksSetting, "clocks set by an administrator"},
        {nvmlClocksEventReasonSyncBoost, "other GPUs of its group"},
        {nvmlClocksEventReasonDisplayClockSetting, "a display"}}) {
    if ((reasons & bits) != 0) words.emplace_back(word);
  }
  return words;
}

bool IsSlowedByFault(uint64_t reasons) {
  constexpr uint64_t kFaults =
      nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksEventReasonSwThermalSlowdown |
      nvmlClocksThrottleReasonHwPowerBrakeSlowdown | nvmlClocksThrottleReasonHwSlowdown;
  return (reasons & kFaults) != 0;
}

}  // namespace lockstep
