// The format IMAGES: folders or tar files of images, and folders of images with masks.
#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "config/formats/decoding_gpu.h"
#include "config/formats/format.h"
#include "config/schema/fields.h"
#include "data/images/image_dataset.h"
#include "data/images/image_names.h"
#include "data/images/image_source.h"
#include "data/images/masks.h"
#include "data/images/open_images.h"

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

constexpr int kNotGiven = -1;  // the value of data.images.mask_ignored if it is not set

bool HasMasks(const config::Data& data) { return data.task() == config::Data::SEGMENTATION; }

class ImageFiles : public Format {
 public:
  bool Has(config::Data::Task task) const override {
    return task == config::Data::CLASSIFICATION || task == config::Data::SEGMENTATION;
  }

  std::optional<FilePair> pair(const config::Data& data) const override {
    if (!HasMasks(data)) return std::nullopt;
    return FilePair{"images", "masks"};
  }

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
    if (HasMasks(data)) {
      CheckMasks(check);
    } else {
      CheckFiles(check, "data.train", data.train());
      CheckFiles(check, "data.validation", data.validation());
      constexpr char kWhy[] = "is for data.task: SEGMENTATION";
      if (images.mask_values_size() > 0) check.Fail("data.images.mask_values", kWhy);
      if (images.mask_ignored() != kNotGiven) check.Fail("data.images.mask_ignored", kWhy);
    }
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
    const config::Data& data = request.config.data();
    if (!HasMasks(data)) return Open(request, {.files = request.files}, std::nullopt);
    return Open(request, ImagesOf(request),
                MaskOptions{.folder = TargetsFile(request), .values = ValuesOf(data.images())});
  }

  TrainingFiles OpenForTraining(const OpenRequest& request, config::Data& found) const override {
    if (HasMasks(request.config.data())) return OpenWithMasks(request, found);
    auto dataset = Open(request);
    const std::vector<std::string>& classes = dataset->spec().class_names;
    found.mutable_images()->mutable_classes()->Assign(classes.begin(), classes.end());
    return {.samples = std::move(dataset)};
  }

  void Describe(const config::Data& data, SampleSpec& spec) const override {
    spec.channels_last = true;
    spec.class_names = ListOf(data.images().classes());
  }

 private:
  static void CheckMasks(const FieldCheck& check) {
    const config::Data& data = check.config().data();
    const config::Images& images = data.images();
    for (const auto& [name, files] :
         {std::pair{"data.train", data.train()}, std::pair{"data.validation", data.validation()}}) {
      if (!std::none_of(files.begin(), files.end(), IsShardName)) {
        check.Fail(name,
                   "images with masks lie in folders, and so do the masks: unpack the .tar files");
      }
    }
    if (images.exif_orientation()) {
      check.Fail("data.images.exif_orientation",
                 "is not for masks, which lie as images are stored");
    }
    if (images.classes_size() > 0) {
      check.Fail("data.images.classes", "is for folders of classes; masks have mask_values");
    }
    if (images.center() != config::Images().center()) {
      check.Fail("data.images.center",
                 "has no meaning for SEGMENTATION: evaluation sees whole images");
    }
    if (std::ranges::count(images.mask_values(), images.mask_ignored()) > 0) {
      check.Fail("data.images.mask_ignored",
                 fmt::format("{} is a class of mask_values", images.mask_ignored()));
    }
    std::set<int> seen;
    for (const int value : images.mask_values()) {
      if (!seen.insert(value).second) {
        check.Fail("data.images.mask_values", fmt::format("{} is there twice", value));
      }
    }
    const int values = images.mask_values_size();
    if (values > kIgnoredPixel) {
      check.Fail("data.images.mask_values", fmt::format("there are at most {}", kIgnoredPixel));
    }
    if (values > 0 && data.classes() > 0 && values != data.classes()) {
      check.Fail("data.images.mask_values",
                 fmt::format("{} values for {} of data.classes", values, data.classes()));
    }
  }

  static ImageSourceOptions ImagesOf(const OpenRequest& request) {
    return {.files = {request.files.front()}, .label_optional = true};
  }

  static MaskValues ValuesOf(const config::Images& images) {
    return {.of_classes = {images.mask_values().begin(), images.mask_values().end()},
            .ignored = images.mask_ignored() == kNotGiven ? static_cast<int>(kIgnoredPixel)
                                                          : images.mask_ignored()};
  }

  TrainingFiles OpenWithMasks(const OpenRequest& request, config::Data& found) const {
    const config::Data& data = request.config.data();
    const config::Images& images = data.images();
    MaskOptions masks{.folder = TargetsFile(request), .values = ValuesOf(images)};
    const ImageSourceOptions source = ImagesOf(request);
    const Masks files(masks.folder, OpenImageSource(source));
    if (!masks.values.of_classes.empty()) {
      RequireTwoClasses(files, masks.values, request.cores);
    } else {
      MaskFindings findings = FindMaskValues(
          files, {.classes = data.classes(),
                  .ignored = masks.values.ignored,
                  .ignored_is_given = images.mask_ignored() != kNotGiven,
                  .skip_bad = data.bad_samples().policy() == config::BadSamples::SKIP,
                  .threads = request.cores});
      masks.values = std::move(findings.values);
      masks.remarks = std::move(findings.remarks);
    }
    const std::vector<int>& values = masks.values.of_classes;
    found.mutable_images()->mutable_mask_values()->Assign(values.begin(), values.end());
    return {.samples = Open(request, source, std::move(masks))};
  }

  static std::shared_ptr<const Dataset> Open(const OpenRequest& request, ImageSourceOptions source,
                                             std::optional<MaskOptions> masks) {
    const config::Images& images = request.config.data().images();
    const SampleSpec& expected = request.expected;
    if (!masks) {
      source.classes = expected.class_names;
      source.class_count = expected.classes;
      source.label_optional = request.label_optional;
    }
    auto dataset = OpenImages({.source = std::move(source),
                               .masks = std::move(masks),
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
};

}  // namespace

std::unique_ptr<const Format> NewImageFiles() { return std::make_unique<ImageFiles>(); }

}  // namespace lockstep
