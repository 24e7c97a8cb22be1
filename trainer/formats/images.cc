// Folders of image files, and tar files of them.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/images/image_dataset.h"
#include "data/images/image_source.h"
#include "trainer/config/schema/fields.h"
#include "trainer/formats/decoding_gpu.h"
#include "trainer/formats/format.h"

namespace lockstep {
namespace {

ImageCache CacheOf(const config::Images& images) {
  switch (images.cache()) {
    case config::Images::OFF:
      return ImageCache::kOff;
    case config::Images::ENCODED:
      return ImageCache::kEncoded;
    case config::Images::DECODED:
      return ImageCache::kDecoded;
  }
  throw BugError("data.images.cache {}", static_cast<int>(images.cache()));
}

void CheckFiles(const FieldCheck& check, const std::string& name, const FieldCheck::Texts& files) {
  if (files.size() > 1 && !std::all_of(files.begin(), files.end(), IsShardName)) {
    check.Fail(name,
               "IMAGES takes one folder, of classes' folders or tar files, or it takes tar files");
  }
}

class ImageFiles : public Format {
 public:
  SampleKind kind(const config::Data&) const override { return SampleKind::kPixels; }

  std::string_view Noun(const std::string& file) const override {
    return IsShardName(file) ? "file" : "folder";
  }

  std::string WhyNot(const std::string& file, mode_t mode) const override {
    if (S_ISDIR(mode)) return "";
    if (std::string why = Format::WhyNot(file, mode); !why.empty()) return why;
    return IsShardName(file) ? "" : "it is neither a folder nor a .tar file";
  }

  void Check(const FieldCheck& check) const override {
    const config::Data& data = check.config().data();
    const config::Images& images = data.images();
    CheckFiles(check, "data.train", data.train());
    CheckFiles(check, "data.validation", data.validation());
    if (images.min_area() > images.max_area()) {
      check.Fail("data.images.min_area", "is greater than max_area");
    }
    if (images.decode() == config::Images::GPU) {
      if (check.config().device() == config::Config::CPU) {
        check.Fail("data.images.decode", "is GPU where device is CPU");
      }
      if (images.cache() == config::Images::DECODED) {
        check.Fail("data.images.decode",
                   "GPU goes with cache: ENCODED or OFF, which keep no pixels");
      }
    }
    check.RequireDistinct("data.images.classes", images.classes());
    const int64_t size = images.size();
    if (data.input_shape_size() > 0 &&
        std::vector<int64_t>(data.input_shape().begin(), data.input_shape().end()) !=
            std::vector<int64_t>{3, size, size}) {
      check.Fail("data.input_shape",
                 fmt::format("IMAGES are 3 x {0} x {0}: set data.images.size", size));
    }
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    const config::Images& images = request.config.data().images();
    const SampleSpec& expected = request.expected;
    auto dataset = OpenImages({.source = {.files = request.files,
                                          .classes = expected.class_names,
                                          .class_count = expected.classes,
                                          .label_optional = request.label_optional},
                               .size = images.size(),
                               .crop = {.min_area = images.min_area(),
                                        .max_area = images.max_area(),
                                        .max_stretch = images.max_stretch()},
                               .mirror = images.mirror(),
                               .exif_orientation = images.exif_orientation(),
                               .center = images.center(),
                               .seed = request.config.seed(),
                               .gpu = DecodingGpu(images, request.device, request.cores),
                               .cache = CacheOf(images),
                               .budget = request.budget});
    const int64_t classes = dataset->spec().classes;
    if (expected.classes > 0 && expected.classes != classes) {
      throw DataError("{}: {} classes where data.classes says {}", request.files[0], classes,
                      expected.classes);
    }
    return dataset;
  }

  TrainingFiles OpenForTraining(const OpenRequest& request, config::Data& found) const override {
    auto dataset = Open(request);
    const std::vector<std::string>& classes = dataset->spec().class_names;
    found.mutable_images()->mutable_classes()->Assign(classes.begin(), classes.end());
    return {.samples = std::move(dataset)};
  }

  void Describe(const config::Data& data, SampleSpec& spec) const override {
    spec.channels_last = true;
    spec.class_names = ListOf(data.images().classes());
  }
};

const RegisteredFormat<ImageFiles> kImages(config::Data::IMAGES);

}  // namespace
}  // namespace lockstep
