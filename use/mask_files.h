// MaskFiles: a folder of predicted masks, a PNG file for each image, as masks to train on are.
//
// Promise: the mask of the image a/b.jpg is FOLDER/a/b.png. It has the image's size: each of its pixels is the nearest
// one of what was predicted, which is the whole image stretched to another size. A pixel's value is that of its class
// in the masks that were trained on.
//
// what can fail -> what the caller sees -> the test that shows it (tests/masks_test.py)
//   two images whose masks would have the same name -> Error (kData), before anything is predicted
//   the folder or a file cannot be written -> Error (kCheckpoint); the folder's before anything is predicted
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/images/image.h"

namespace lockstep {

class MaskFiles {
 public:
  // Makes the folder, if it is not there. Throws Error (kCheckpoint).
  explicit MaskFiles(std::string folder);

  // `images`: paths below the folder or within the archives that `files` names, of all of whose images `numbers` has
  // the predicted ones. Throws Error (kData).
  void Prepare(std::string files, std::vector<std::string> images, std::vector<int64_t> numbers);

  // `classes`: of each image the pixels of its mask, which has the size `size`. `values`: the value of each class.
  // Throws Error (kData, kCheckpoint).
  void Write(std::span<const uint8_t> classes, const ImageSize& size,
             std::span<const int32_t> values) const;

 private:
  std::string PathOf(const std::string& image) const;

  std::string folder_;
  std::string files_;
  std::vector<std::string> images_;
  std::vector<int64_t> numbers_;
};

}  // namespace lockstep
