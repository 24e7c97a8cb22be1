// The format NPY: arrays that NumPy saved.
#include "data/arrays/npy.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/formats/format.h"

namespace lockstep {
namespace {

class Npy : public Format {
 public:
  SampleKind kind(const config::Data& data) const override {
    switch (data.npy().kind()) {
      case config::Npy::PIXELS:
        return SampleKind::kPixels;
      case config::Npy::TEXTS:
        return SampleKind::kTexts;
      default:
        return SampleKind::kNumbers;
    }
  }
  bool Has(config::Data::Task) const override { return true; }
  std::optional<FilePair> pair(const config::Data&) const override {
    return FilePair{"inputs", "targets"};
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    return MapNpy({.inputs = request.files[0],
                   .targets = TargetsFile(request),
                   .task = request.expected.task,
                   .classes = request.expected.classes,
                   .dtype = request.expected.dtype});
  }

  TrainingFiles OpenForTraining(const OpenRequest& request, config::Data&) const override {
    auto samples = Open(request);
    if (samples->spec().task == Task::kSegmentation) {
      RequireTwoClasses(*samples, TargetsFile(request));
    }
    return {.samples = std::move(samples)};
  }

 private:
  // Throws Error (kData) if all pixels of the masks in `file` that have a class are of the same class.
  static void RequireTwoClasses(const Dataset& samples, const std::string& file) {
    std::vector<uint8_t> mask(samples.spec().targets());
    std::optional<uint8_t> first;
    bool lacks_classes = false;
    for (int64_t i = 0; i < samples.size(); ++i) {
      samples.ReadTarget(i, reinterpret_cast<std::byte*>(mask.data()));
      for (const uint8_t label : mask) {
        if (label == kIgnoredPixel) {
          lacks_classes = true;
        } else if (label != first.value_or(label)) {
          return;
        } else {
          first = label;
        }
      }
    }
    if (!first) {
      throw DataError(
          "{}: masks without a class: each pixel is {}, which is no class: there is nothing to "
          "learn: give the pixels the numbers of their classes, from 0",
          file, kIgnoredPixel);
    }
    throw DataError(
        "{}: masks of one class alone: each pixel is {}{}: there is nothing to learn: give masks "
        "of two classes, numbered from 0",
        file, *first, lacks_classes ? fmt::format(" or {}, which is no class", kIgnoredPixel) : "");
  }
};

}  // namespace

std::unique_ptr<const Format> NewNpy() { return std::make_unique<Npy>(); }

}  // namespace lockstep
