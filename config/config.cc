#include "config/config.h"

#include <google/protobuf/text_format.h>

#include <filesystem>

#include "base/error.h"
#include "base/files/open_file.h"
#include "config/check_config.h"
#include "config/defaults.h"
#include "config/read_config.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using google::protobuf::TextFormat;

constexpr size_t kMostText = size_t{16} << 20;  // the most bytes that a config file may have

}  // namespace

std::string ReadConfigText(const std::string& path) {
  std::string why;
  std::string text = ReadGivenFile(path, kMostText, why);
  if (!why.empty()) throw UsageError("{}: no config can be read from it: {}", path, why);
  return text;
}

Config LoadConfig(const std::string& path, const std::vector<std::string>& assignments) {
  return LoadConfigText(path, ReadConfigText(path), assignments);
}

Config LoadConfigText(const std::string& path, const std::string& text,
                      const std::vector<std::string>& assignments) {
  Origins origins;
  Config config = ParseFile(path, text, FormerFields::kRefuse, origins);
  for (const std::string& assignment : assignments) Assign(assignment, config, origins);
  CheckConfig(FieldCheck(config, path, origins), Files::kMustExist);
  FillDefaults(config, config);
  if (config.run_dir().empty()) config.set_run_dir("runs/" + fs::path(path).stem().string());
  return config;
}

Config LoadRunConfig(const std::string& run_dir) {
  const std::string path = RunConfigPath(run_dir);
  Origins origins;
  std::string why;
  const std::string text = ReadPlainFile(path, kInRunFolder, kMostText, why);
  if (!why.empty()) {
    throw UsageError("{}: no run's config: {}: name a run folder (lockstep runs FOLDER lists them)",
                     path, why);
  }
  Config config = ParseFile(path, text, FormerFields::kBringUpToDate, origins);
  CheckConfig(FieldCheck(config, path, origins), Files::kMayBeGone);
  if (config.data().input_shape().empty() || config.data().classes() == 0) {
    throw UsageError("{}: not the config that a run left behind: name a run folder", path);
  }
  return config;
}

std::string RunConfigPath(const std::string& run_dir) { return run_dir + "/config.pbtxt"; }

std::string PrintConfig(const Config& config) {
  std::string text;
  TextFormat::PrintToString(config, &text);
  return text;
}

Config ParsePrinted(const std::string& text) {
  std::string why;
  Config config = ParseText(text, why);
  if (!why.empty()) throw UsageError("config of another program: {}", why);
  FillDefaults(config, config);
  return config;
}

}  // namespace lockstep
