#include "base/files/run_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace lockstep {
namespace {

constexpr char kLog[] = "log.jsonl", kLock[] = "lock", kCrew[] = "crew.json";
constexpr std::array<std::string_view, 15> kNames{
    kLog,          kLock,          kCrew,
    "STOP",        "anomaly.json", "checkpoint.request",
    "checkpoints", "config.pbtxt", "crew.lock",
    "flight",      "memory",       "profile.request",
    "profiles",    "tensorboard",  "weights.safetensors"};

bool Has(const std::string& folder, const char* name) {
  struct stat status {};
  std::error_code ignored;
  return std::filesystem::is_directory(folder, ignored) &&
         lstat((folder + "/" + name).c_str(), &status) == 0;
}

}  // namespace

bool IsRunFolder(const std::string& path) { return Has(path, kLog) || Has(path, kLock); }

bool IsCrewFolder(const std::string& path) { return Has(path, kCrew); }

bool IsNameOfRun(std::string_view name) {
  if (std::ranges::find(kNames, name) != kNames.end()) return true;
  return name.starts_with("fold-") && name.ends_with(".txt");  // what a fold has printed
}

}  // namespace lockstep
