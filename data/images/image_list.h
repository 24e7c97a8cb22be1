// ImageList: the samples of a run. They are the images of an index, in the order of the run's classes, with the labels
// of these classes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/images/image_index.h"
#include "data/images/image_source.h"

namespace lockstep {

// The names that error messages use for the images and classes of an index.
struct ImageNames {
  std::string all;                                 // the name of the folder, or of the shards
  std::function<std::string(int64_t row)> image;   // names the image with number `row` in the index
  std::function<std::string(int64_t c)> of_class;  // names class `c` of the index
};

class ImageList {
 public:
  // Throws Error (kData) in these cases: there are no images; a class that was found has no images, although labels are
  // required and the options give no classes; an image has no label, although labels are required; a class or label is
  // not among those of the options; or a label is so great that the number of classes cannot be inferred from it
  // (data/dataset/inferred_classes.h).
  ImageList(ImageIndex index, const ImageSourceOptions& options, const ImageNames& names);

  const ImageIndex& index() const { return index_; }
  int64_t size() const { return index_.size(); }
  int64_t classes() const { return classes_; }
  const std::vector<std::string>& class_names() const { return class_names_; }

  // Returns the number that sample `i` of the run has in the index.
  int64_t RowOf(int64_t i) const;
  int64_t LabelOf(int64_t i) const;
  const std::vector<std::string>& remarks() const { return remarks_; }
  std::string Fingerprint() const;

 private:
  void RefuseEmptyClasses(const ImageNames& names) const;
  void CheckLabels(const ImageSourceOptions& options, const ImageNames& names);
  void ArrangeClasses(const ImageSourceOptions& options, const ImageNames& names);
  // Returns the index in first_ of the class of sample `i` or, if the sample has no label, of the samples without a
  // label.
  int64_t GroupOf(int64_t i) const;

  ImageIndex index_;
  int64_t classes_ = 0;
  std::vector<std::string> class_names_;
  std::vector<std::string> remarks_;
  // For each class, and then for the samples without a label: the number of the first sample in the run (first_), and
  // the number of the same sample in the index (first_row_). Both are empty if the run has the order of the index.
  std::vector<int64_t> first_;
  std::vector<int64_t> first_row_;
};

// An image source whose samples are the images of an ImageList.
class ListedImages : public ImageSource {
 public:
  int64_t size() const override { return list_.size(); }
  int64_t classes() const override { return list_.classes(); }
  const std::vector<std::string>& class_names() const override { return list_.class_names(); }
  int64_t LabelOf(int64_t i) const override { return list_.LabelOf(i); }
  std::string PathOf(int64_t i) const override {
    return list_.index().PathWithClass(list_.RowOf(i));
  }
  std::vector<std::string> Remarks() const override { return list_.remarks(); }
  std::string Fingerprint() const override { return list_.Fingerprint(); }

 protected:
  explicit ListedImages(ImageList list) : list_(std::move(list)) {}

  const ImageList list_;
};

}  // namespace lockstep
