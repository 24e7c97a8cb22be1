#include "trainer/run_folder.h"

#include <filesystem>

#include "base/error.h"
#include "ckpt/atomic_file.h"
#include "trainer/config.h"

namespace lockstep {

RunFolder::RunFolder(const config::Config& config) : path_(config.run_dir()) {
  const std::filesystem::path folder = std::filesystem::absolute(path_);
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  // Of two runs that start at once one makes the folder, and the other sees that it did not.
  const bool made = !error && std::filesystem::create_directory(folder, error);
  if (error) throw UsageError("{}: the run folder cannot be made: {}", path_, error.message());
  if (!made) {
    throw UsageError(
        "{}: the run folder exists already: remove it, or choose another with --set run_dir=...",
        path_);
  }
  WriteFileAtomically(RunConfigPath(path_), PrintConfig(config));
  log_.open(path_ + "/log.jsonl");
}

void RunFolder::Log(const nlohmann::ordered_json& event) {
  // A file's name may be no UTF-8.
  log_ << event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n'
       << std::flush;
  if (!log_) throw CheckpointError("{}/log.jsonl: cannot be written: is the disk full?", path_);
}

std::string RunWeightsPath(const std::string& run_dir) { return run_dir + "/weights.safetensors"; }

}  // namespace lockstep
