#include "config/formats/datasets.h"

#include <utility>

#include "base/error.h"
#include "base/nearest.h"

namespace lockstep {

void Datasets::Add(const std::string& name, Factory factory) {
  factories_[name] = std::move(factory);
}

std::shared_ptr<const Dataset> Datasets::Open(const config::Own& config,
                                              std::vector<std::string> files,
                                              const SampleSpec& expected,
                                              bool labels_optional) const {
  const std::string& name = config.name();
  const auto factory = factories_.find(name);
  if (factory == factories_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : factories_) names.push_back(known);
    throw UsageError("data.own.name: this program brings no data set \"{}\"{} (known: {})", name,
                     DidYouMean(name, names),
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
  const DatasetSource source{.files = std::move(files),
                             .options = Options("data.own.option", config.option()),
                             .expected = expected,
                             .labels_optional = labels_optional};
  std::shared_ptr<const Dataset> dataset = factory->second(source);
  if (dataset == nullptr) {
    throw DataError("the data set \"{}\" was not made: its factory returned no data set", name);
  }
  source.options.RequireAllAsked(fmt::format("data set \"{}\"", name));
  const SampleSpec& spec = dataset->spec();
  if (spec.dtype != expected.dtype) {
    throw DataError("the data set \"{}\" has samples of {} where data.own.kind is {}", name,
                    c10::toString(spec.dtype), config::Own::Kind_Name(config.kind()));
  }
  if (spec.task != expected.task) {
    throw DataError("the data set \"{}\" is for another task than data.task", name);
  }
  if (expected.classes > 0 && spec.classes != expected.classes) {
    throw DataError("the data set \"{}\" has {} classes where {} are expected", name, spec.classes,
                    expected.classes);
  }
  const bool has_images = config.kind() == config::Own::PIXELS || spec.task == Task::kSegmentation;
  if (has_images && spec.shape.size() != 3) {
    throw DataError(
        "the data set \"{}\" has samples of {} dimensions: images have channels, height and width",
        name, spec.shape.size());
  }
  if (dataset->size() == 0) throw DataError("the data set \"{}\" has no samples", name);
  return dataset;
}

}  // namespace lockstep
