#include "launch/job/job_size.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

int RanksOfEach(int asked, int gpus) { return asked > 0 ? asked : std::max(1, gpus); }

std::string MachinesInWords(int machines, const std::string& noun, int gpus) {
  std::string words = machines == 1 ? "one " + noun : fmt::format("{} {}s", machines, noun);
  if (gpus > 0) {
    words +=
        fmt::format(" with {} GPU{}{}", gpus, gpus == 1 ? "" : "s", machines == 1 ? "" : " each");
  }
  return words;
}

}  // namespace lockstep
