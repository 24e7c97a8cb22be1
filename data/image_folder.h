// Image folders: JPEG and PNG files in one folder for each class, decoded and cut to one size.
//
// Promise: sample i is the i-th file in the order of classes and names; what Read() gives depends on
// the file, the seed, the epoch and i alone, never on the thread. Labels are the folders' places in
// the order of their names, or in options.classes.
//
// While training, each epoch sees another part of the image (RandomCrop in data/crop.h), mirrored half of
// the time. Plain() sees the middle. Either is decoded, as far as it is needed, and resized with
// antialiasing.
//
// Invariants:
//   1. Only names are read when the folder is opened: a name takes its bytes and eight more. A class may
//      be a link to a folder; links to folders inside it are not followed, so that none leads in circles.
//   2. What a thread needs to decode (data/image_decoder.h, data/resize.h) it keeps.
//
// what can fail -> what the caller sees -> the test that shows it (data/image_folder_test.cc)
//   no folder, no images in it, images beside the classes' folders, a folder that is no known class
//     -> Error (kData) naming it -> ImageFolder.Refuses*
//   a file that is damaged, of another kind, or gone since -> Error (kData) from Read() with its path
//     -> ImageFolder.NamesTheFileThatCannotBeRead
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/crop.h"
#include "data/dataset.h"

namespace lockstep {

struct ImageFolderOptions {
  std::string folder;
  std::vector<std::string> classes{};  // the labels' names, in order; empty: the folders in it
  bool label_optional = false;         // files that lie in the folder itself have no label
  int64_t size = 224;                  // of the square that is cut, in pixels
  CropOptions crop{};                  // in training
  bool mirror = true;
  double center = 0.875;  // the share of the shorter side that evaluation sees
  uint64_t seed = 0;
};

// Throws Error (kData).
std::shared_ptr<const Dataset> OpenImageFolder(const ImageFolderOptions& options);

}  // namespace lockstep
