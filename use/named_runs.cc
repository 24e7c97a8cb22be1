#include "use/named_runs.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "ckpt/weights.h"
#include "config/config.h"

namespace lockstep {
namespace {

bool IsRun(const std::string& run_dir) { return std::filesystem::exists(RunConfigPath(run_dir)); }

}  // namespace

std::string FoldRunDir(const std::string& run_dir, int64_t fold) {
  return fmt::format("{}/fold-{}", run_dir, fold);
}

bool HoldsFolds(const std::string& run_dir) {
  return !IsRun(run_dir) && IsRun(FoldRunDir(run_dir, 0));
}

std::vector<NamedRun> RunsNamed(const std::string& name) {
  const std::string run_dir = ParseRunPoint(name).run_dir;
  if (!HoldsFolds(run_dir)) return {{name, LoadRunConfig(run_dir)}};
  const std::string first = FoldRunDir(run_dir, 0);
  const std::string point = name.substr(run_dir.size());  // for example "@best"
  std::vector<NamedRun> runs = {{first + point, LoadRunConfig(first)}};
  const int64_t count = runs.front().config.data().folds().count();
  for (int64_t fold = 1; fold < count; ++fold) {
    const std::string folder = FoldRunDir(run_dir, fold);
    if (!IsRun(folder)) {
      throw UsageError(
          "{}: fold {} of {} has not been trained: lockstep train CONFIG --folds {} "
          "goes on with it",
          run_dir, fold, count, count);
    }
    runs.push_back({folder + point, LoadRunConfig(folder)});
  }
  return runs;
}

}  // namespace lockstep
