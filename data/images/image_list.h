// ImageList: gives a run the images of an index by their number, with the labels of the run's classes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/images/image_index.h"
#include "data/images/image_source.h"

namespace lockstep {

// How errors name what is listed.
struct ImageNames {
  std::string all;                                 // the folder, or the shards
  std::function<std::string(int64_t row)> image;   // `row`: its number in the index
  std::function<std::string(int64_t c)> of_class;  // `c`: its place in the index's classes
};

class ImageList {
 public:
  // Throws Error (kData): no images, a class that has none where the classes are those that were found, one without a label where that is not optional, a class or a label
  // that is none of the options'.
  ImageList(ImageIndex index, const ImageSourceOptions& options, const ImageNames& names);

  const ImageIndex& index() const { return index_; }
  int64_t size() const { return index_.size(); }
  int64_t classes() const { return classes_; }
  const std::vector<std::string>& class_names() const { return class_names_; }

  // The number in the index of sample `i`.
  int64_t RowOf(int64_t i) const;
  int64_t LabelOf(int64_t i) const;
  const std::vector<std::string>& remarks() const { return remarks_; }
  std::string Fingerprint() const;

 private:
  void RefuseEmptyClasses(const ImageNames& names) const;
  void CheckLabels(const ImageSourceOptions& options, const ImageNames& names);
  void ArrangeClasses(const ImageSourceOptions& options, const ImageNames& names);
  // Where sample `i` lies in first_.
  int64_t GroupOf(int64_t i) const;

  ImageIndex index_;
  int64_t classes_ = 0;
  std::vector<std::string> class_names_;
  std::vector<std::string> remarks_;
  // Of each class, then of what has none: its first sample, and that one's number in the index.
  std::vector<int64_t> first_;
  std::vector<int64_t> first_row_;
};

// A source of the images in a list.
class ListedImages : public ImageSource {
 public:
  int64_t size() const override { return list_.size(); }
  int64_t classes() const override { return list_.classes(); }
  const std::vector<std::string>& class_names() const override { return list_.class_names(); }
  int64_t LabelOf(int64_t i) const override { return list_.LabelOf(i); }
  std::vector<std::string> Remarks() const override { return list_.remarks(); }
  std::string Fingerprint() const override { return list_.Fingerprint(); }

 protected:
  explicit ListedImages(ImageList list) : list_(std::move(list)) {}

  const ImageList list_;
};

}  // namespace lockstep
