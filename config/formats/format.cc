#include "config/formats/format.h"

#include "base/error.h"
#include "base/files/open_file.h"

namespace lockstep {
std::string Format::WhyNot(const std::string&, mode_t mode) const {
  std::string why = WhyNoPlainFile(mode);
  if (!S_ISDIR(mode)) return why;
  return why + "; a folder with a folder of images for each class is data.format: IMAGES";
}

TrainingFiles Format::OpenForTraining(const OpenRequest& request, config::Data&) const {
  return {.samples = Open(request)};
}

std::vector<std::vector<std::string>> Format::ReadColumns(const OpenRequest& request,
                                                          const std::vector<std::string>&,
                                                          std::string_view field) const {
  throw BugError("{} for {}", field, FormatName(request.config.data()));
}

std::string Format::TargetsFile(const OpenRequest& request) const {
  if (request.files.size() == 2) return request.files[1];
  if (request.files.size() == 1 && request.label_optional) return "";
  const config::Data& data = request.config.data();
  throw UsageError("{}; not {}", PairText(data), request.files.size());
}

std::string Format::PairText(const config::Data& data) const {
  const FilePair files = pair(data).value();
  return fmt::format("{} takes two {}s: {}, {}", FormatName(data), Noun(""), files.inputs,
                     files.targets);
}

const std::string& FormatName(const config::Data& data) {
  return config::Data::Format_Name(data.format());
}

}  // namespace lockstep
