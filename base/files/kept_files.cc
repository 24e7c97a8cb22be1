#include "base/files/kept_files.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/run_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string OfRun(const std::string& run) {
  return fmt::format("is a file that the run {} keeps for itself", run);
}

void RequireNone(const std::string& why, const std::string& given) {
  if (why.empty()) return;
  throw UsageError("{}: {}, which an output does not replace: name another file", given, why);
}

bool IsSame(const fs::path& first, const fs::path& second) {
  std::error_code ignored;
  return fs::equivalent(first, second, ignored);
}

// Returns whether `name`, a file or folder in the run folder `run`, is one of the run's own. A file system may take
// several spellings for one name, and a file may have several names.
bool IsOfRun(const fs::path& run, const std::string& name) {
  if (IsNameOfRun(name)) return true;
  struct stat status {};
  if (lstat((run / name).c_str(), &status) != 0) return false;
  std::error_code error;
  for (fs::directory_iterator entry(run, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string own = entry->path().filename();
    if (own != name && IsNameOfRun(own) && IsSame(entry->path(), run / name)) return true;
  }
  return false;
}

}  // namespace

void KeptFiles::Add(const std::string& path, const std::string& what) {
  Add(path, what, [](std::string_view) { return true; });
}

void KeptFiles::Add(const std::string& path, const std::string& what, IsInput is_input) {
  Add({.path = path, .what = what, .is_input = std::move(is_input)});
}

void KeptFiles::AddRun(const std::string& path) {
  Add({.path = path, .is_run = true, .is_input = IsNameOfRun});
}

void KeptFiles::Add(Kept kept) {
  struct stat status {};
  if (stat(kept.path.c_str(), &status) != 0) return;
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return;  // a pipe or a terminal
  kept.device = status.st_dev;
  kept.inode = status.st_ino;
  kept.is_folder = S_ISDIR(status.st_mode);
  kept_.push_back(std::move(kept));
  other_names_.reset();
}

std::string KeptFiles::WhyNot(const std::string& path) const {
  struct stat file {};
  if (lstat(path.c_str(), &file) == 0) {
    if (std::string why = WhyNot(file); !why.empty()) return why;
  }
  std::error_code error;
  const std::string name = fs::absolute(path, error).lexically_normal().filename();
  // The name of the entry of `folder` below which the file lies.
  std::string entry = name;
  fs::path folder = fs::weakly_canonical(fs::absolute(path).parent_path(), error);
  if (error) return "";
  for (;; folder = folder.parent_path()) {
    struct stat status {};
    if (stat(folder.c_str(), &status) == 0) {
      bool is_run = IsRunFolder(folder) || IsCrewFolder(folder);
      for (const Kept& kept : kept_) {
        if (!kept.Is(status)) continue;
        is_run = is_run || kept.is_run;
        if (!kept.is_run && kept.is_input(name)) {
          return fmt::format("lies in {}, {}", kept.path, kept.what);
        }
      }
      if (is_run && IsOfRun(folder, entry)) return OfRun(folder);
    }
    if (folder == folder.root_path()) return "";
    entry = folder.filename();
  }
}

std::string KeptFiles::WhyNot(const struct stat& file) const {
  for (const Kept& kept : kept_) {
    if (!kept.is_folder && kept.Is(file)) return "is " + kept.what;
  }
  if (!S_ISREG(file.st_mode) || file.st_nlink <= 1) return "";
  const auto found = OtherNames().find({file.st_dev, file.st_ino});
  return found == OtherNames().end() ? "" : found->second;
}

const std::map<std::pair<dev_t, ino_t>, std::string>& KeptFiles::OtherNames() const {
  if (other_names_) return *other_names_;
  other_names_.emplace();
  for (const Kept& kept : kept_) {
    if (!kept.is_folder) continue;
    std::error_code error;
    fs::recursive_directory_iterator entry(kept.path, fs::directory_options::skip_permission_denied,
                                           error);
    for (const fs::recursive_directory_iterator end; !error && entry != end;
         entry.increment(error)) {
      struct stat file {};
      if (lstat(entry->path().c_str(), &file) != 0) continue;
      if (!S_ISREG(file.st_mode) || file.st_nlink <= 1) continue;
      const fs::path within = entry->path().lexically_relative(kept.path);
      const std::string name = kept.is_run ? within.begin()->string() : within.filename().string();
      if (!kept.is_input(name)) continue;
      other_names_->try_emplace({file.st_dev, file.st_ino},
                                kept.is_run
                                    ? OfRun(kept.path)
                                    : fmt::format("is {}, {}", entry->path().string(), kept.what));
    }
  }
  return *other_names_;
}

void KeptFiles::Require(const std::string& path, const std::string& given) const {
  RequireNone(WhyNot(path), given);
}

void KeptFiles::Require(const struct stat& file, const std::string& given) const {
  RequireNone(WhyNot(file), given);
}

}  // namespace lockstep
