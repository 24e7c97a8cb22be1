// Drafts a config for folders of images and of masks, with an exported U-Net.
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/in_threads.h"
#include "data/dataset/split.h"
#include "data/images/image_source.h"
#include "data/images/masks.h"
#include "data/images/open_images.h"
#include "prepare/new/draft.h"
#include "prepare/new/image_sizes.h"

namespace lockstep {
namespace {

constexpr double kHeldBack = 0.2;
constexpr char kModelFile[] = "unet.lsm";

// Sides that are divisible by 32, because a U-Net halves them five times.
constexpr int64_t kSides[] = {256, 192, 128, 96, 64};

class MaskDraft {
 public:
  MaskDraft(const FoundData& data, const NewRequest& request)
      : data_(data),
        request_(request),
        source_(OpenImageSource({.files = {data.train[0]}, .label_optional = true})),
        masks_(data.train[1], source_),
        found_(FindMaskValues(masks_, {.threads = ReadingThreads()})),
        sizes_(SizesOf(*source_)),
        side_(SideFor(sizes_, kSides)) {
    constexpr int64_t kFewest = 10;
    if (source_->size() < kFewest) {
      throw DataError("{}: {}: give at least {}", data.train[0], Count(source_->size(), "image"),
                      kFewest);
    }
    const int64_t held_back = data.validation.empty() ? HeldBackOf(source_->size(), kHeldBack) : 0;
    training_images_ = source_->size() - held_back;
    recipe_ = RecipeOfImages(training_images_);
    recipe_.metric = "iou";
  }

  Draft Make() {
    const std::string images = fmt::format("{} with masks of {}", Count(source_->size(), "image"),
                                           Count(classes(), "class"));
    BeginConfig(request_, images, config_);
    WriteData();
    config_.Blank();
    WriteModel();
    config_.Blank();
    WriteTraining(recipe_, training_images_, config_);
    Draft draft{.config = config_.text(),
                .found = {FoundText(data_.train[0], images, sizes_)},
                .next = {ExportCommand(), TrainCommand(request_), PredictCommand(request_, data_)},
                .stand_in = source_->NameOf(0)};
    for (const auto& remarks : {source_->Remarks(), masks_.remarks(), found_.remarks}) {
      for (const std::string& remark : remarks) draft.found.push_back("note: " + remark);
    }
    if (!sizes_.damaged.empty()) draft.found.push_back("note: damaged: " + sizes_.damaged);
    return draft;
  }

 private:
  int64_t classes() const { return std::ssize(found_.values.of_classes); }

  std::string ExportCommand() const {
    const std::filesystem::path folder = std::filesystem::path(request_.output).parent_path();
    return fmt::format("python3 -m lockstep.export unet:make_net --size {} --output {}", side_,
                       (folder / kModelFile).string());
  }

  void WriteData() {
    config_.Open("data");
    config_.Line("format: IMAGES task: SEGMENTATION");
    WriteFiles(data_, request_, config_);
    if (data_.validation.empty()) WriteHeldBack(source_->size(), kHeldBack, config_);
    BeginImages(side_, sizes_, config_);
    config_.Line("min_area: 0.25", "training sees at least a quarter of each image");
    config_.Line("mirror: true", "half of the images are mirrored, with their masks");
    if (found_.values.of_classes.back() >= classes()) {
      config_.Line(fmt::format("mask_values: [{}]", fmt::join(found_.values.of_classes, ", ")),
                   "the masks hold these values alone, which are taken for the classes 0 and 1");
    }
    config_.Close();
    WriteDamaged(sizes_, config_);
    config_.Close();
  }

  void WriteModel() {
    config_.Comment(fmt::format(
        "No built-in model predicts pixels: export a U-Net, such as the one of docs/models.md with "
        "classes={} (unet.py), or one with torchvision's or timm's weights: {}",
        classes(), ExportCommand()));
    config_.Open("model");
    config_.Line("name: \"imported\"");
    config_.Line(fmt::format("imported {{ file: \"{}\" }}", kModelFile));
    config_.Close();
  }

  const FoundData& data_;
  const NewRequest& request_;
  std::shared_ptr<const ImageSource> source_;
  Masks masks_;
  MaskFindings found_;
  ImageSizes sizes_;
  int64_t side_;
  int64_t training_images_ = 0;
  Recipe recipe_;
  ConfigText config_;
};

}  // namespace

Draft DraftForMasks(const FoundData& data, const NewRequest& request) {
  return MaskDraft(data, request).Make();
}

}  // namespace lockstep
