// Masks: PNG files that hold the class of each pixel of an image.
//
// Promise: the mask of the image FOLDER/a/b.jpg is MASKS/a/b.png, which has the image's size. If there is no such file,
// MASKS/a/b.PNG is the mask, or another file whose extension has these letters. A pixel's value (the index in the
// file's palette, or the grey level) gives its class: the value MaskValues::of_classes[c] stands for class c, the value
// MaskValues::ignored means that the pixel has no class (kIgnoredPixel), and any other value is an error.
//
// For each output pixel, CutMask() takes the mask's pixel that contains the centre of the output pixel. Resizer uses
// the same centres (data/images/resize.h), so a mask matches an image that was resized with the same box.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/masks_test.cc)
//   no folder, images without a mask -> Error (kData) naming the first -> Masks.RefusesImagesWithoutMasks
//   a file that is gone, damaged, of another kind -> Error (kData) from Read() with its path -> Masks.RefusesFiles
//   a value that is no class -> Error (kData) with path, row and column -> Masks.RefusesValues
//   masks in which no pixel has a class, or all pixels have the same one -> Error (kData) before the first step
//     -> FindMaskValues.RefusesLessThanTwoClasses
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/images/image.h"
#include "data/images/image_source.h"

namespace lockstep {

struct MaskValues {
  std::vector<int> of_classes{};  // the value of each class
  // The value of pixels that have no class. If this value is also in `of_classes`, its pixels have the class that
  // `of_classes` gives it.
  int ignored = 255;
};

// A mask. Masks::Read() fills in the values of the file, and MaskClasses::Convert() replaces them by classes.
struct Mask {
  ImageSize size;
  std::vector<uint8_t> pixels;  // row by row
  std::vector<std::byte> file;  // the bytes of the file; a buffer that Read() uses again
  uint32_t file_hash = 0;       // SampleRecord::HashOf() of the file
};

class Masks {
 public:
  // `folder` must hold a mask for each of `images`. Throws Error (kData).
  Masks(std::string folder, std::shared_ptr<const ImageSource> images);

  int64_t size() const { return images_->size(); }
  const std::string& folder() const { return folder_; }

  // Returns the path of the mask of image `i`.
  std::string PathOf(int64_t i) const;

  // Returns lines for Dataset::Remarks(): which files of the folder are left out, because no image has their names or
  // because they are hidden (base/files/hidden_name.h).
  const std::vector<std::string>& remarks() const { return remarks_; }

  // Reads the mask of image `i` into `mask`, with the values of its file. Any number of threads may call Read(). Throws
  // Error (kData).
  void Read(int64_t i, Mask& mask) const;

 private:
  void FindMasksOfAnyCase();

  std::string folder_;
  std::shared_ptr<const ImageSource> images_;
  // The paths below folder_ of the masks that are not named .png, by the numbers of their images.
  std::unordered_map<int64_t, std::string> other_case_;
  std::vector<std::string> remarks_;
};

// The masks of a data set, and the classes that their values mean.
struct MaskOptions {
  std::string folder;  // empty: the masks are unknown
  MaskValues values;
  std::vector<std::string> remarks{};  // further lines for Dataset::Remarks()
};

// The result of FindMaskValues().
struct MaskFindings {
  MaskValues values;
  std::vector<std::string> remarks;  // lines for Dataset::Remarks()
};

struct FindMaskOptions {
  int64_t classes = 0;  // the number of classes; 0: the greatest value except `ignored`, plus 1
  int ignored = 255;    // the same as MaskValues::ignored
  // Whether the user gave `ignored`. The values 0 and 255 are the classes if three conditions hold: `ignored_is_given`
  // is false, `classes` is 0 or 2, and the masks hold exactly these two values.
  bool ignored_is_given = false;
  // Whether masks that cannot be read are skipped, and values that are no class are accepted.
  bool skip_bad = false;
  int threads = 1;
};

// Reads all masks and finds which values are classes. Throws Error (kData), as Masks::Read() and MaskClasses::Convert()
// do, and as RequireTwoClasses() does.
MaskFindings FindMaskValues(const Masks& masks, const FindMaskOptions& options);

// Reads masks until pixels of two of the classes that `values` names were found, or a mask that cannot be used. Throws
// Error (kData) if all masks together have fewer than two classes.
void RequireTwoClasses(const Masks& masks, const MaskValues& values, int threads);

// Converts the values of masks to classes.
class MaskClasses {
 public:
  explicit MaskClasses(const MaskValues& values);

  // Replaces each of the mask's values by its class. Throws Error (kData), with the path `path`, if a value is no
  // class.
  void Convert(const std::string& path, Mask& mask) const;

 private:
  std::array<int16_t, 256> of_value_;  // the class of each value; kNone: the value is an error
  size_t classes_;
  int ignored_;
};

// Writes the part `box` of a mask as width x height pixels, row by row. With `mirror`, left and right are exchanged.
void CutMask(const Mask& mask, const Box& box, int64_t width, int64_t height, bool mirror,
             uint8_t* output);

}  // namespace lockstep
