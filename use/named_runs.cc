#include "use/named_runs.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "ckpt/weights.h"
#include "config/config.h"
#include "observe/history/training_folder.h"

namespace lockstep {
namespace {

bool IsRun(const std::string& run_dir) { return std::filesystem::exists(RunConfigPath(run_dir)); }

// Throws Error (kUsage) if the user named something else of a run than its folder.
void RefuseOther(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    if (path.ends_with(".safetensors")) {
      throw UsageError(
          "{}: holds weights and no config: name the run whose model they are of, and give "
          "--weights {}",
          path, path);
    }
    if (path.ends_with(".pbtxt")) {
      throw UsageError("{}: is a config: name the run folder that it trains in, {}", path,
                       LoadConfig(path, {}).run_dir());
    }
    throw UsageError("{}: is no run folder (lockstep runs FOLDER lists them)", path);
  }
  // RUN/checkpoints/step-000000000046 is named RUN@46.
  const std::filesystem::path folder = std::filesystem::path(path + "/").parent_path();
  const bool is_all = folder.filename() == "checkpoints";
  if (IsRun(path) || (!is_all && folder.parent_path().filename() != "checkpoints")) return;
  const std::filesystem::path run =
      is_all ? folder.parent_path() : folder.parent_path().parent_path();
  if (!IsRun(run.string())) return;
  throw UsageError("{}: a checkpoint is named {}@STEP (lockstep checkpoints {} lists them)", path,
                   run.string(), run.string());
}

}  // namespace

std::vector<NamedRun> RunsNamed(const std::string& name, const std::string& weights) {
  const std::string run_dir = ParseRunPoint(name).run_dir;
  RefuseOther(run_dir);
  if (KindOf(run_dir) != FolderKind::kCrossValidation) {
    return {{name, LoadRunConfig(run_dir), weights}};
  }
  if (!weights.empty()) {
    throw UsageError("--weights: {} holds several folds: name the one whose model they are of, {}",
                     run_dir, FoldRunDir(run_dir, 0));
  }
  const std::string point = name.substr(run_dir.size());  // for example "@best"
  const std::vector<std::string> folders = FoldFolders(run_dir);
  std::vector<NamedRun> runs;
  for (const std::string& folder : folders) {
    if (!IsRun(folder)) {
      throw UsageError(
          "{}: fold {} of {} has not been trained: lockstep train CONFIG --folds {} "
          "goes on with it",
          run_dir, runs.size(), folders.size(), folders.size());
    }
    runs.push_back({folder + point, LoadRunConfig(folder)});
  }
  return runs;
}

}  // namespace lockstep
