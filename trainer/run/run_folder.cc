#include "trainer/run/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/kept_files.h"
#include "base/files/open_file.h"
#include "base/files/run_files.h"
#include "base/say.h"
#include "ckpt/weights.h"
#include "config/config.h"
#include "observe/profile/profile_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Renames the run folder `path` to the first of path.1, path.2, ... that does not exist, and returns the new name.
std::string MoveAway(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const RunLock nobody_trains_in_it(path, "that moves it away");
  for (int number = 1;; ++number) {
    const std::string free = fmt::format("{}.{}", path, number);
    if (fs::exists(free)) continue;
    RenameWithoutReplacing(path, free, kSaving);
    return free;
  }
}

// Cuts off an incomplete last line of the file `path`, which a process leaves if it is killed while it writes the line.
void CutTornLine(const std::string& path) {
  std::string why;
  const FileDescriptor file = OpenPlainFile(path, kInRunFolder, O_RDWR, why);
  struct stat status {};
  if (file.get() < 0 && access(path.c_str(), F_OK) != 0) return;
  if (file.get() < 0) throw CheckpointError("{}: cannot be written: {}", path, why);
  if (fstat(file.get(), &status) != 0) throw CheckpointError("{}: cannot be read", path);
  int64_t end = status.st_size;
  for (std::byte c{}; end > 0; --end) {
    if (ReadAt(file, end - 1, {&c, 1}) != 1) throw CheckpointError("{}: cannot be read", path);
    if (c == std::byte{'\n'}) break;
  }
  if (end < status.st_size && ftruncate(file.get(), end) != 0) {
    throw CheckpointError("{}: cannot be written: {}", path, std::strerror(errno));
  }
}

}  // namespace

std::string AnomalyPath(const std::string& run_dir) { return run_dir + "/anomaly.json"; }

RunFolder::RunFolder(const config::Config& config, const std::string& job, bool fresh)
    : path_(config.run_dir()), job_(job) {
  const fs::path folder = fs::absolute(path_);
  if (const std::string why = KeptFiles().WhyNot(path_); !why.empty()) {
    throw UsageError("{}: {}: choose another folder with --set run_dir=...", path_, why);
  }
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  // A folder in which a user keeps a config.pbtxt is no run's: the run would replace that file. A copy of a run may lack
  // the log and the lock.
  const bool is_copy = fs::exists(RunConfigPath(path_)) && fs::exists(path_ + "/checkpoints");
  if (fs::exists(folder) && !IsRunFolder(path_) && !is_copy &&
      !(fs::is_directory(folder) && fs::is_empty(folder))) {
    throw UsageError(
        "{}: exists already and is no run's: choose another folder with --set run_dir=...", path_);
  }
  if (fresh && fs::exists(folder)) {
    warnings_.push_back(
        fmt::format("{}: the run that was there is now {}", path_, MoveAway(path_)));
  }
  const bool made = !error && fs::create_directory(folder, error);
  if (!made && !error && !fs::is_directory(folder))
    error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw UsageError("{}: the run folder cannot be made: {}", path_, error.message());
  if (made) SyncFolder(folder.parent_path().string(), kSaving);
  lock_.emplace(path_, job_);
  if (!lock_->why_not().empty()) warnings_.push_back(lock_->why_not());
  if (made) return;
  // Old flight records in the folder `flight` of the run folder are deleted later. So `flight` must be a real folder
  // and not a symbolic link, through which files of others would be deleted.
  const fs::file_type flight = fs::symlink_status(path_ + "/flight").type();
  if (flight != fs::file_type::not_found && flight != fs::file_type::directory) {
    throw UsageError("{}/flight: is no folder of the run's own: remove it", path_);
  }
  // Request files that are in the folder at this time were meant for an earlier job, which has ended.
  if (CheckpointIsRequested()) AnswerRequest();
  std::error_code ignored;
  fs::remove(ProfileRequestPath(path_), ignored);
  RemoveLeftovers(path_);
  for (const std::string& file :
       {RunConfigPath(path_), RunWeightsPath(path_), AnomalyPath(path_)}) {
    RemoveTornWrites(file);
  }
  checkpoints_ = ListCheckpoints(path_);
}

std::optional<Checkpoint> RunFolder::newest() const {
  if (damaged_ == checkpoints_.size()) return std::nullopt;
  return checkpoints_[damaged_];
}

void RunFolder::Reject(const std::string& why) {
  ++damaged_;
  warnings_.push_back(why);
}

void RunFolder::Accept(const std::vector<std::string>& differences) const {
  const std::optional<Checkpoint> checkpoint = newest();
  if (!checkpoint && damaged_ > 0) {
    throw CheckpointError(
        "{}: none of its {} checkpoints is whole: begin anew with --fresh, which keeps the folder "
        "under another name",
        warnings_[warnings_.size() - damaged_], damaged_);
  }
  if (!checkpoint && fs::exists(RunWeightsPath(path_))) {
    throw UsageError(
        "{}: the run has ended and left no checkpoint to go on from: begin it anew with --fresh, "
        "or choose another folder with --set run_dir=...",
        path_);
  }
  if (!differences.empty()) {
    // Another model or other data would not fit the checkpoint's state.
    const bool fits = std::ranges::none_of(differences, [](const std::string& difference) {
      return difference.starts_with("model.") || difference.starts_with("data.");
    });
    const std::string elsewhere =
        fits ? fmt::format("go on from it in another folder with --from {}@{} --set run_dir=...",
                           path_, checkpoint->step)
             : "choose another folder with --set run_dir=...";
    throw UsageError(
        "{}: the run's checkpoint of step {} is of another config: {}: set it back, {}, or begin "
        "anew with --fresh",
        path_, checkpoint->step, fmt::join(differences, "; "), elsewhere);
  }
}

void RunFolder::Begin(const config::Config& config) {
  for (size_t i = 0; i < damaged_; ++i) SetAside(checkpoints_[i]);
  WriteFileAtomically(RunConfigPath(path_), PrintConfig(config));
  const std::string log = path_ + "/log.jsonl";
  CutTornLine(log);
  log_.emplace(log, kSaving, kInRunFolder);
  log_bytes_ = static_cast<int64_t>(fs::file_size(log));
}

void RunFolder::Log(const nlohmann::ordered_json& event) {
  const bool failed_before = !unwritten_.empty();
  // The event may hold a file's name that is not valid UTF-8.
  unwritten_ += event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  try {
    log_->Write(std::as_bytes(std::span(unwritten_)), log_bytes_);
    log_bytes_ += static_cast<int64_t>(unwritten_.size());
    unwritten_.clear();
  } catch (const Error& error) {
    if (!failed_before) Warn(fmt::format("{}: its lines wait until it can be", error.what()));
  }
}

bool RunFolder::CheckpointIsRequested() const {
  std::error_code ignored;
  return fs::exists(RequestPath(path_), ignored);
}

void RunFolder::AnswerRequest() {
  std::error_code ignored;
  fs::remove(RequestPath(path_), ignored);
}

bool RunFolder::IsRemoved() const {
  struct stat status {};
  // An error other than ENOENT may mean that the file system is unreachable for a while, so the folder does not count
  // as removed.
  return lstat(path_.c_str(), &status) != 0 && errno == ENOENT;
}

std::string RunFolder::WhyUserStops() const {
  std::error_code ignored;
  if (fs::exists(StopPath(path_), ignored)) return "its user's STOP";
  if (IsRemoved()) return "its folder was removed";
  return RunLock::IsOfAnother(path_, job_) ? "another job has its folder" : "";
}

void RunFolder::RequireOwn(const config::Config& config) {
  if (RunLock::IsOfAnother(path_, job_)) {
    throw CheckpointError(
        "{}: another job trains there, since this one's folder was moved or removed: the state of "
        "this one is not saved",
        path_);
  }
  if (!IsRemoved()) return;
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw CheckpointError("{}: cannot be made again: {}", path_, error.message());
  lock_.emplace(path_, job_);
  WriteFileAtomically(RunConfigPath(path_), PrintConfig(config));
  log_.emplace(path_ + "/log.jsonl", kSaving, kInRunFolder);
  log_bytes_ = 0;
}

void RunFolder::AnswerStop() {
  std::error_code ignored;
  fs::remove(StopPath(path_), ignored);
}

}  // namespace lockstep
