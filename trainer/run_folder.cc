#include "trainer/run_folder.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "ckpt/atomic_file.h"
#include "trainer/config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Gives the run's folder the first of the names RUN.1, RUN.2, ... that is free, and returns it.
std::string MoveAway(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const RunLock nobody_trains_in_it(path);
  for (int number = 1;; ++number) {
    const std::string free = fmt::format("{}.{}", path, number);
    if (fs::exists(free)) continue;
    RenameWithoutReplacing(path, free, kSaving);
    return free;
  }
}

// What a process that was killed while it wrote leaves behind the last whole line is cut off.
void CutTornLine(const std::string& path) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error || bytes == 0) return;
  std::ifstream file(path, std::ios::binary);
  int64_t end = bytes;
  for (char c = 0; end > 0; --end) {
    file.seekg(end - 1);
    if (!file.get(c)) throw CheckpointError("{}: cannot be read", path);
    if (c == '\n') break;
  }
  if (end < bytes) fs::resize_file(path, static_cast<uintmax_t>(end));
}

}  // namespace

RunFolder::RunFolder(const config::Config& config, bool fresh) : path_(config.run_dir()) {
  const fs::path folder = fs::absolute(path_);
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (fs::exists(folder) && !fs::exists(RunConfigPath(path_)) && !fs::exists(path_ + "/lock") &&
      !(fs::is_directory(folder) && fs::is_empty(folder))) {
    throw UsageError(
        "{}: exists already and is no run's: choose another folder with --set run_dir=...", path_);
  }
  if (fresh && fs::exists(folder)) {
    warnings_.push_back(
        fmt::format("{}: the run that was there is now {}", path_, MoveAway(path_)));
  }
  const bool made = !error && fs::create_directory(folder, error);
  if (error) throw UsageError("{}: the run folder cannot be made: {}", path_, error.message());
  if (made) SyncFolder(folder.parent_path().string(), kSaving);
  lock_.emplace(path_);
  if (!lock_->why_not().empty()) warnings_.push_back(lock_->why_not());
  if (!made) FindNewest(config);
}

void RunFolder::Begin(const config::Config& config) {
  for (const Checkpoint& checkpoint : damaged_) SetAside(checkpoint);
  WriteFileAtomically(RunConfigPath(path_), PrintConfig(config));
  const std::string log = path_ + "/log.jsonl";
  CutTornLine(log);
  log_.open(log, std::ios::app);
}

void RunFolder::FindNewest(const config::Config& config) {
  RemoveLeftovers(path_);
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(path_);
  if (checkpoints.empty() && fs::exists(RunWeightsPath(path_))) {
    throw UsageError(
        "{}: the run has ended and left no checkpoint to go on from: begin it anew with --fresh, or "
        "choose another folder with --set run_dir=...",
        path_);
  }
  checkpoint::Manifest manifest;
  for (const Checkpoint& checkpoint : checkpoints) {
    try {
      manifest = ReadManifest(checkpoint);
      VerifyCheckpoint(checkpoint, manifest);
      newest_ = checkpoint;
      break;
    } catch (const Error& error) {
      damaged_.push_back(checkpoint);
      warnings_.emplace_back(error.what());
    }
  }
  if (!newest_) {
    if (damaged_.empty()) return;
    throw CheckpointError(
        "{}: none of its {} checkpoints is whole: begin anew with --fresh, which keeps the folder "
        "under another name",
        warnings_.front(), damaged_.size());
  }
  const std::vector<std::string> differences = Differences(ParsePrinted(manifest.config()), config);
  if (!differences.empty()) {
    throw UsageError(
        "{}: the run's checkpoint of step {} is of another config: {}: set it back, choose another "
        "folder with --set run_dir=..., or begin anew with --fresh",
        path_, newest_->step, fmt::join(differences, "; "));
  }
}

void RunFolder::Log(const nlohmann::ordered_json& event) {
  // A file's name may be no UTF-8.
  log_ << event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n'
       << std::flush;
  if (!log_) throw CheckpointError("{}/log.jsonl: cannot be written: is the disk full?", path_);
}

std::string RunWeightsPath(const std::string& run_dir) { return run_dir + "/weights.safetensors"; }

}  // namespace lockstep
