#include "data/images/image_list.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/files/xxh3.h"
#include "data/dataset/inferred_classes.h"
#include "data/images/image_format.h"

namespace lockstep {

ImageList::ImageList(ImageIndex index, const ImageSourceOptions& options, const ImageNames& names)
    : index_(std::move(index)), class_names_(options.classes) {
  if (index_.layout() == ImageLayout::kNumberedShards) {
    CheckLabels(options, names);
  } else {
    ArrangeClasses(options, names);
  }
  for (int64_t i = 0; i < index_.left_out().size(); ++i) {
    remarks_.push_back(fmt::format("{}{}",
                                   index_.layout() == ImageLayout::kFolders ? names.all + "/" : "",
                                   index_.left_out()[i]));
  }
}

void ImageList::CheckLabels(const ImageSourceOptions& options, const ImageNames& names) {
  const std::span<const int32_t> labels = index_.labels();
  classes_ = class_names_.empty() ? options.class_count : static_cast<int64_t>(class_names_.size());
  const int64_t limit = classes_;
  int64_t greatest = -1;
  size_t greatest_at = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] < 0 && !options.label_optional) {
      const auto without = std::ranges::count_if(labels, [](int32_t label) { return label < 0; });
      throw DataError(
          "{}: no label: there is no .cls member of its name{}: add its class's number as such a "
          "member, or remove the image",
          names.image(static_cast<int64_t>(row)),
          without == 1 ? ", as there is of all others"
                       : fmt::format(" ({} of {} images have none)", without, labels.size()));
    }
    if (limit > 0 && labels[row] >= limit) {
      throw DataError("{}: label {} is out of range: data.classes is {}",
                      names.image(static_cast<int64_t>(row)), labels[row], limit);
    }
    if (labels[row] <= greatest) continue;
    greatest = labels[row];
    greatest_at = row;
  }
  if (labels.empty()) throw DataError("{}: no {} members", names.all, kImageExtensions);
  if (limit == 0 && greatest >= kMaxInferredClasses) {
    throw DataError("{}: label {} is no likely class number: if it is one, set data.classes",
                    names.image(static_cast<int64_t>(greatest_at)), greatest);
  }
  if (limit > 0) return;
  classes_ = std::max<int64_t>(1, greatest + 1);
  remarks_ = RemarksOnLabels(names.all, labels);
}

void ImageList::ArrangeClasses(const ImageSourceOptions& options, const ImageNames& names) {
  const Texts& found = index_.classes();
  const bool shards = index_.layout() == ImageLayout::kShards;
  if (const int64_t first = index_.FirstOf(found.size());
      first < size() && !options.label_optional) {
    if (shards) {
      throw DataError(
          "{}: no label: put it into a folder of its class's name, or a .cls member beside it",
          names.image(first));
    }
    throw DataError("{}: an image beside the classes: put each into the folder of its class",
                    names.image(first));
  }

  std::map<std::string_view, int64_t> found_at;
  for (int64_t c = 0; c < found.size(); ++c) found_at.emplace(found[c], c);
  if (class_names_.empty()) {
    for (const auto& [name, c] : found_at) class_names_.emplace_back(name);
  }
  std::map<std::string_view, int64_t> wanted;
  for (const std::string& name : class_names_) wanted.emplace(name, 0);
  for (const auto& [name, c] : found_at) {
    if (wanted.contains(name)) continue;
    throw DataError("{}: no class \"{}\" was trained on (the {} classes are {}, ...)",
                    names.of_class(c), name, class_names_.size(), class_names_.front());
  }
  classes_ = class_names_.empty() ? options.class_count : static_cast<int64_t>(class_names_.size());

  int64_t samples = 0;
  const auto add = [&](int64_t first_row, int64_t count) {
    first_.push_back(samples);
    first_row_.push_back(first_row);
    samples += count;
  };
  for (const std::string& name : class_names_) {
    const auto c = found_at.find(name);
    if (c == found_at.end()) {
      add(0, 0);
    } else {
      add(index_.FirstOf(c->second), index_.FirstOf(c->second + 1) - index_.FirstOf(c->second));
    }
  }
  add(index_.FirstOf(found.size()), size() - index_.FirstOf(found.size()));
  if (size() > 0) {
    if (options.classes.empty() && !options.label_optional) RefuseEmptyClasses(names);
    return;
  }
  if (shards) throw DataError("{}: no {} members", names.all, kImageExtensions);
  throw DataError("{}: no {} files{}", names.all, kImageExtensions,
                  options.label_optional ? "" : ": there is to be a folder for each class");
}

// Throws Error (kData) if a class has no images. torchvision's ImageFolder refuses this, too. Tar files cannot hold an
// empty class, so the labels would differ between a folder and shards of the same images.
void ImageList::RefuseEmptyClasses(const ImageNames& names) const {
  for (int64_t c = 0; c < index_.classes().size(); ++c) {
    if (index_.FirstOf(c) < index_.FirstOf(c + 1)) continue;
    throw DataError(
        "{}: a folder is a class, and there are no {} files in this one: put some in, or remove it",
        names.of_class(c), kImageExtensions);
  }
}

int64_t ImageList::GroupOf(int64_t i) const {
  return std::upper_bound(first_.begin(), first_.end(), i) - first_.begin() - 1;
}

int64_t ImageList::RowOf(int64_t i) const {
  if (first_.empty()) return i;
  const int64_t group = GroupOf(i);
  return first_row_[group] + (i - first_[group]);
}

int64_t ImageList::LabelOf(int64_t i) const {
  if (index_.layout() == ImageLayout::kNumberedShards) {
    return index_.labels()[i] < 0 ? ImageSource::kNoLabel : index_.labels()[i];
  }
  const int64_t label = GroupOf(i);
  return label < static_cast<int64_t>(class_names_.size()) ? label : ImageSource::kNoLabel;
}

std::string ImageList::Fingerprint() const {
  const std::string classes = fmt::format("{}\n{}", classes_, fmt::join(class_names_, "\n"));
  return fmt::format("images {:016x} of classes {:016x}", index_.content_hash(), Xxh3Of(classes));
}

}  // namespace lockstep
