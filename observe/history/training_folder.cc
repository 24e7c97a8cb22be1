#include "observe/history/training_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/run_files.h"
#include "ckpt/run_lock.h"
#include "config/read_config.h"
#include "observe/history/crew_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFold = "fold-";

// The maximum size of a config. The limit is this large because a config may contain the categories of a table's
// columns.
constexpr size_t kMostConfigBytes = size_t{64} << 20;

bool Exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

bool HasConfig(const std::string& path) { return Exists(path + "/config.pbtxt"); }

// Returns the number of the fold whose job or folder has the name `name`; nothing for any other name.
std::optional<int64_t> FoldOf(std::string_view name) {
  if (!name.starts_with(kFold)) return std::nullopt;
  name.remove_prefix(kFold.size());
  int64_t fold = 0;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), fold);
  if (error != std::errc() || rest != name.data() + name.size() || fold < 0) return std::nullopt;
  return fmt::format("{}", fold) == name ? std::optional(fold) : std::nullopt;
}

// Returns how many folds crew.json lists; 0 if it lists none.
int64_t FoldsOfCrew(const std::string& path) {
  int64_t count = 0;
  for (const JobRecord& job : CrewFile::Read(path)) {
    if (const auto fold = FoldOf(job.name)) count = std::max(count, *fold + 1);
  }
  return count;
}

// Returns the numbers of the folds that have a folder, in ascending order. A copy of a trained fold may have no log.
std::vector<int64_t> FoldsIn(const std::string& path) {
  std::vector<int64_t> folds;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string folder = entry->path();
    const std::optional<int64_t> fold = FoldOf(entry->path().filename().string());
    if (fold && (HasConfig(folder) || IsRunFolder(folder))) folds.push_back(*fold);
  }
  std::ranges::sort(folds);
  return folds;
}

// Returns data.folds.count of the fold's config; 0 if the config cannot be read.
int64_t CountIn(const std::string& fold_dir) {
  std::string why;
  const config::Config config = SavedConfig(fold_dir, why);
  return why.empty() ? config.data().folds().count() : 0;
}

[[noreturn]] void FailAsNone(const std::string& path) {
  if (!Exists(path)) throw UsageError("{}: there is no such folder", path);
  throw UsageError("{}: it is no run folder: it has neither a log.jsonl nor a lock", path);
}

}  // namespace

FolderKind KindOf(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return FolderKind::kOther;
  if (IsRunFolder(path)) return FolderKind::kRun;
  const bool has_folds = FoldsOfCrew(path) > 0 || (!HasConfig(path) && !FoldsIn(path).empty());
  return has_folds ? FolderKind::kCrossValidation : FolderKind::kOther;
}

bool HasJob(const std::string& path) {
  if (KindOf(path) != FolderKind::kCrossValidation) return RunLock::IsHeld(path);
  return CrewFile::HasCrew(path) || std::ranges::any_of(FoldFolders(path), &RunLock::IsHeld);
}

std::string FoldRunDir(const std::string& path, int64_t fold) {
  return fmt::format("{}/{}{}", path, kFold, fold);
}

std::vector<std::string> FoldFolders(const std::string& path) {
  int64_t count = FoldsOfCrew(path);
  if (count == 0) {
    const std::vector<int64_t> folds = FoldsIn(path);
    for (size_t i = 0; i < folds.size() && count == 0; ++i) {
      count = CountIn(FoldRunDir(path, folds[i]));
    }
    if (!folds.empty()) count = std::max(count, folds.back() + 1);
  }
  std::vector<std::string> folders;
  for (int64_t fold = 0; fold < count; ++fold) folders.push_back(FoldRunDir(path, fold));
  return folders;
}

std::vector<std::string> RunFoldersOf(const std::string& path) {
  if (KindOf(path) == FolderKind::kCrossValidation) return FoldFolders(path);
  return {path};
}

void RequireTraining(const std::string& path) {
  if (KindOf(path) == FolderKind::kOther) FailAsNone(path);
}

void RefuseFolds(const std::string& path) {
  if (KindOf(path) != FolderKind::kCrossValidation) return;
  throw UsageError("{}: holds the folds of a cross-validation: name one, {}", path,
                   FoldRunDir(path, 0));
}

void RequireRoomForFolds(const std::string& path) {
  const FolderKind kind = KindOf(path);
  if (kind == FolderKind::kCrossValidation) return;
  if (kind == FolderKind::kRun) {
    throw UsageError("{}: holds a run, and folds need a folder of their own: --set run_dir=FOLDER",
                     path);
  }
  // A job that was killed before its first fold began may have left files.
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename();
    if (IsNameOfRun(name) || FoldOf(name)) continue;
    throw UsageError(
        "{}: exists already and holds no folds: choose another folder with --set run_dir=...",
        path);
  }
}

void RequireRunFolder(const std::string& path) {
  RefuseFolds(path);
  if (KindOf(path) == FolderKind::kOther) FailAsNone(path);
}

std::vector<std::string> TrainingsIn(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (KindOf(entry->path()) != FolderKind::kOther) found.push_back(entry->path());
  }
  if (error) {
    throw UsageError("{}: cannot be read: {}: name the folder in which the run folders lie", folder,
                     error.message());
  }
  return found;
}

config::Config SavedConfig(const std::string& run_dir, std::string& why) {
  const std::string text =
      ReadPlainFile(run_dir + "/config.pbtxt", kInRunFolder, kMostConfigBytes, why);
  return why.empty() ? ParseText(text, why) : config::Config();
}

}  // namespace lockstep
