#include "config/formats/format.h"

#include <map>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"

namespace lockstep {
namespace {

using Formats = std::map<config::Data::Format, std::unique_ptr<const Format>>;

// Made when the first format registers itself, in whatever order that happens.
Formats& AllFormats() {
  static Formats formats;
  return formats;
}

}  // namespace

std::string Format::WhyNot(const std::string&, mode_t mode) const {
  std::string why = WhyNoPlainFile(mode);
  if (!S_ISDIR(mode)) return why;
  return why + "; a folder with a folder of images for each class is data.format: IMAGES";
}

TrainingFiles Format::OpenForTraining(const OpenRequest& request, config::Data&) const {
  return {.samples = Open(request)};
}

std::vector<std::string> Format::ReadColumn(const OpenRequest& request, const std::string&,
                                            std::string_view field) const {
  throw BugError("{} for {}", field, FormatName(request.config.data()));
}

std::string Format::TargetsFile(const OpenRequest& request) const {
  if (request.files.size() == 2) return request.files[1];
  if (request.files.size() == 1 && request.label_optional) return "";
  const config::Data& data = request.config.data();
  throw UsageError("{}; not {}", PairText(data, pair(data).value()), request.files.size());
}

const Format& FormatOf(const config::Data& data) {
  const auto found = AllFormats().find(data.format());
  if (found == AllFormats().end()) {
    throw BugError("no file of config/formats registers data.format {}", FormatName(data));
  }
  return *found->second;
}

const std::string& FormatName(const config::Data& data) {
  return config::Data::Format_Name(data.format());
}

std::string PairText(const config::Data& data, const Format::FilePair& pair) {
  return fmt::format("{} takes two {}s: {}, {}", FormatName(data), FormatOf(data).Noun(""),
                     pair.inputs, pair.targets);
}

bool HoldsTokens(const config::Data& data) {
  return PredictsTokens(data) || FormatOf(data).kind(data) == SampleKind::kTexts;
}

bool PredictsTokens(const config::Data& data) {
  return FormatOf(data).kind(data) == SampleKind::kTokens;
}

bool HoldsPixels(const config::Data& data) {
  return FormatOf(data).kind(data) == SampleKind::kPixels;
}

void RegisterFormat(config::Data::Format value, std::unique_ptr<const Format> format) {
  AllFormats().emplace(value, std::move(format));
}

}  // namespace lockstep
