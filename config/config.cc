#include "config/config.h"

#include <google/protobuf/text_format.h>

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"
#include "config/check_config.h"
#include "config/defaults.h"
#include "config/read_config.h"
#include "config/schema/fields.h"
#include "config/schema/options.pb.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

constexpr size_t kMostText = size_t{16} << 20;  // the most bytes that a config file may have

// Applies `assignments` to the config that the file `path` holds, checks it, and fills in its defaults.
Config Complete(Config config, const std::string& path, const std::vector<std::string>& assignments,
                Origins& origins, Files files) {
  for (const std::string& assignment : assignments) Assign(assignment, config, origins);
  CheckConfig(FieldCheck(config, path, origins), files);
  FillDefaults(config, config);
  if (config.run_dir().empty()) config.set_run_dir("runs/" + fs::path(path).stem().string());
  return config;
}

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
  return Complete(ParseFile(path, text, FormerFields::kRefuse, origins), path, assignments, origins,
                  Files::kMustExist);
}

Config LoadConfigForElsewhere(const std::string& path, const std::string& text,
                              const std::vector<std::string>& assignments) {
  Origins origins;
  Config config = ParseFile(path, text, FormerFields::kRefuse, origins);
  std::string why;
  const Config as_written = ParseText(text, why);
  VisitSetFields(
      as_written, "",
      [&](const Message& message, const FieldDescriptor& field, const std::string& name) {
        if (!field.options().GetExtension(config::existing_file)) return;
        for (const std::string& file : StringsOf(message, field)) {
          if (file.empty() || fs::path(file).is_absolute()) continue;
          FieldCheck(config, path, origins)
              .Fail(name, fmt::format("{}: the machines that train do not see this "
                                      "config's folder: write the whole path that the "
                                      "file has there",
                                      file));
        }
      });
  return Complete(std::move(config), path, assignments, origins, Files::kMayBeGone);
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
