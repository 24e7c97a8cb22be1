// Drafts a config for folders or shards of images, with a ResNet.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/dataset/split.h"
#include "data/images/image_source.h"
#include "data/images/open_images.h"
#include "prepare/new/draft.h"
#include "prepare/new/image_sizes.h"

namespace lockstep {
namespace {

constexpr double kHeldBack = 0.2;
constexpr int64_t kFewImages = 20'000, kManyImages = 200'000;

// Sides that are divisible by 32, because a ResNet halves them five times.
constexpr int64_t kSides[] = {224, 160, 128, 96, 64};

// Returns whether the classes are probably digits or letters, which must not be mirrored: whether each class name has
// one byte.
bool AreSigns(const ImageSource& source) {
  const std::vector<std::string>& names = source.class_names();
  return !names.empty() &&
         std::ranges::all_of(names, [](const std::string& name) { return name.size() == 1; });
}

class ImageDraft {
 public:
  ImageDraft(const FoundData& data, const NewRequest& request)
      : data_(data), request_(request), source_(OpenImageSource({.files = data.train})) {
    if (source_->classes() < 2) {
      throw DataError(
          "{}: images of one class alone: there is nothing to learn, make a folder for each class",
          data.train[0]);
    }
    if (source_->size() < 2 * source_->classes()) {
      throw DataError("{}: {} of {}: give more images of each class", data.train[0],
                      Count(source_->size(), "image"), Count(source_->classes(), "class"));
    }
    sizes_ = SizesOf(*source_);
    side_ = SideFor(sizes_, kSides);
    if (!data.validation.empty()) {
      validation_ = OpenImageSource({.files = data.validation, .classes = source_->class_names()});
    }
    const int64_t held_back = validation_ ? 0 : HeldBackOf(source_->size(), kHeldBack);
    training_images_ = source_->size() - held_back;
    recipe_ = RecipeOfImages(training_images_);
  }

  Draft Make() {
    const std::string images = fmt::format("{} of {}", Count(source_->size(), "image"),
                                           Count(source_->classes(), "class"));
    BeginConfig(request_, images, config_);
    WriteData();
    config_.Blank();
    WriteModel();
    config_.Blank();
    WriteTraining(recipe_, training_images_, config_);
    Draft draft{.config = config_.text(),
                .found = {FoundText(data_.train[0], images, sizes_)},
                .next = {TrainCommand(request_)}};
    if (validation_) {
      draft.found.push_back(fmt::format("{}: {} to evaluate on", NameOfFile(data_.validation[0]),
                                        Count(validation_->size(), "image")));
    }
    for (const std::string& remark : source_->Remarks()) draft.found.push_back("note: " + remark);
    if (!sizes_.damaged.empty()) draft.found.push_back("note: damaged: " + sizes_.damaged);
    draft.next.push_back(data_.test.empty() ? EvaluateCommand(request_, {})
                                            : PredictCommand(request_, data_));
    return draft;
  }

 private:
  void WriteData() {
    config_.Open("data");
    config_.Line("format: IMAGES");
    WriteFiles(data_, request_, config_);
    if (!validation_) WriteHeldBack(source_->size(), kHeldBack, config_);
    WriteShares();
    BeginImages(side_, sizes_, config_);
    if (side_ <= 64) {
      config_.Line("min_area: 0.5", "small images would lose what they show in smaller crops");
      config_.Line("center: 1", "evaluation sees whole images");
    } else {
      config_.Line("min_area: 0.25", "training sees at least a quarter of each image");
    }
    if (AreSigns(*source_)) {
      config_.Line("mirror: false",
                   "the classes are digits or letters: mirrored ones are other signs");
    } else {
      config_.Line("mirror: true",
                   "half of the images are mirrored; not for digits, letters or sides");
    }
    config_.Close();
    WriteDamaged(sizes_, config_);
    config_.Close();
  }

  void WriteShares() {
    std::vector<int64_t> counts(source_->classes());
    for (int64_t i = 0; i < source_->size(); ++i) ++counts[source_->LabelOf(i)];
    const auto [least, most] = std::ranges::minmax_element(counts);
    const auto name = [&](int64_t label) {
      return source_->class_names().empty() ? std::to_string(label) : source_->class_names()[label];
    };
    config_.Comment(fmt::format(
        "Classes have {} ({:.40}) to {} images ({:.40}).{}", *least, name(least - counts.begin()),
        *most, name(most - counts.begin()),
        *least * 4 < *most ? " If each is to count the same, take loss { balanced: true }." : ""));
  }

  void WriteModel() {
    const int depth = training_images_ < kFewImages || side_ <= 64 ? 18
                      : training_images_ < kManyImages             ? 34
                                                                   : 50;
    config_.Comment(
        fmt::format("{} to train on. With torchvision's weights (init_from: "
                    "\"resnet{}.safetensors\" replace_head: true, "
                    "docs/models.md) and lr: 0.0003 a net needs far fewer images.",
                    Count(training_images_, "image"), depth));
    config_.Open("model");
    config_.Line("name: \"resnet\"");
    config_.Line(fmt::format("resnet {{ depth: {} }}", depth));
    config_.Line("label_smoothing: 0.1");
    config_.Close();
  }

  const FoundData& data_;
  const NewRequest& request_;
  std::shared_ptr<const ImageSource> source_;
  std::shared_ptr<const ImageSource> validation_;
  ImageSizes sizes_;
  int64_t side_ = 0;
  int64_t training_images_ = 0;
  Recipe recipe_;
  ConfigText config_;
};

}  // namespace

Draft DraftForImages(const FoundData& data, const NewRequest& request) {
  return ImageDraft(data, request).Make();
}

}  // namespace lockstep
