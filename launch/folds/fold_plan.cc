#include "launch/folds/fold_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {

int64_t FoldPlan::SideBySide() const {
  if (asked > 0) return std::min(asked, count);
  if (starts_ranks) return 1;
  const int64_t room = gpus.empty() ? cores : std::ssize(gpus);
  return std::min(room, count);
}

std::vector<std::string> FoldPlan::CommandOf(int64_t fold, int64_t place,
                                             const std::string& fold_dir) const {
  std::vector<std::string> command{"env"};
  if (!gpus.empty() && !starts_ranks) {
    command.push_back("CUDA_VISIBLE_DEVICES=" + gpus[place % std::ssize(gpus)]);
  } else if (!starts_ranks) {
    const auto threads = std::max<int64_t>(1, cores / SideBySide());
    command.push_back(fmt::format("OMP_NUM_THREADS={}", threads));
  }
  command.insert(command.end(), program.begin(), program.end());
  for (const std::string& assignment :
       {std::string("data.validation_fraction=0"), fmt::format("data.folds.count={}", count),
        fmt::format("data.folds.fold={}", fold), "run_dir=" + fold_dir}) {
    command.insert(command.end(), {"--set", assignment});
  }
  return command;
}

std::vector<std::string> WithoutOptions(const std::vector<std::string>& words,
                                        const std::vector<std::string>& names) {
  std::vector<std::string> left;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto is = [&](const std::string& name) { return words[i] == name; };
    const auto begins = [&](const std::string& name) { return words[i].starts_with(name + "="); };
    if (std::ranges::any_of(names, is)) {
      ++i;  // skips the option's value
    } else if (std::ranges::none_of(names, begins)) {
      left.push_back(words[i]);
    }
  }
  return left;
}

}  // namespace lockstep
