// MaskFiles: writes predicted masks to a folder, as one PNG file for each image. The files can be used as training
// masks.
//
// Promise: the mask of the image a/b.jpg is FOLDER/a/b.png, and has the image's size. The predicted mask shows the
// whole image, but may have another size; each pixel of the file gets the class of the nearest pixel of the predicted
// mask. A pixel's value is the value that its class had in the masks of the training data.
//
// what can fail -> what the caller sees -> the test that shows it (tests/masks_test.py)
//   two images whose masks would have the same path -> Error (kData), before anything is predicted
//   a mask would replace an input, or lie among the images -> Error (kUsage), before anything is predicted
//     -> tests/outputs_test.py
//   the folder or a file cannot be written -> Error (kCheckpoint); for the folder before anything is predicted
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files/kept_files.h"
#include "data/images/image.h"

namespace lockstep {

class MaskFiles {
 public:
  // Creates the folder if it does not exist. `kept` has the command's inputs. Throws Error (kCheckpoint).
  MaskFiles(std::string folder, KeptFiles kept);

  // Sets the images whose masks Write() will write, and checks that no two masks would have the same path. `files` is
  // the path of the images' folder or archive. `images` are the predicted images, as paths within `files`, and
  // `numbers` are their indices among all images of `files`. Makes the folders of the masks, and checks that each mask
  // can be written. Throws Error (kUsage, kData, kCheckpoint).
  void Prepare(std::string files, std::vector<std::string> images, std::vector<int64_t> numbers);

  // Writes the masks of all images. `classes` holds the predicted class of each pixel of all masks, one mask of size
  // `size` after the other. `values` holds the pixel value of each class. Throws Error (kData, kCheckpoint).
  void Write(std::span<const uint8_t> classes, const ImageSize& size,
             std::span<const int32_t> values) const;

 private:
  std::string PathOf(const std::string& image) const;

  std::string folder_;
  KeptFiles kept_;
  std::string files_;
  std::vector<std::string> images_;
  std::vector<int64_t> numbers_;
};

}  // namespace lockstep
