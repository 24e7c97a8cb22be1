// A data set of JPEG, PNG, WebP and BMP files. Read() decodes an image, crops it and resizes it to the size of all
// samples.
//
// Promise: the result of Read() depends only on the file, the seed, the epoch and the sample's number. It does not
// depend on the thread or on which images the cache holds.
//
// In training each epoch uses another part of the image (RandomCrop in data/images/crop.h), mirrored half of the time.
// The data set that Plain() returns (for validation) uses the middle, or with masks the whole image, stretched to the
// square. A sample's mask (data/images/masks.h) is cut from the same part and mirrored in the same way; each of its
// pixels is the nearest pixel of the mask's file. Read() decodes only the part of the image that it needs, and resizes
// this part with antialiasing. With ImageCache::kDecoded, Read() decodes the whole image at its own size, also if the
// cache has no room for the image.
//
// Each thread keeps the objects that it needs to decode (data/images/image_decoder.h, data/images/resize.h). With
// ImageOptions::gpu a GPU decodes the files that its decoder supports, many at once (data/images/gpu_decoder.h). The
// loader's thread decodes the other files, and those that the GPU's decoder finds damaged.
//
// data/feed/image_cache_bench.cc measures what a cache gains.
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/image_folder_test.cc)
//   files that cannot be listed as classes -> Error (kData) (data/images/image_source.h)
//   a file that is damaged, of another kind, or gone since -> Error (kData) from Read() with its name
//     -> ImageFolderTest.NamesTheFileThatCannotBeRead
//   a mask of another size than its image -> Error (kData) from Read() naming both -> MaskedImages.HaveMasksOfTheirSize
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/images/crop.h"
#include "data/images/image_source.h"
#include "data/images/kept_bytes.h"
#include "data/images/masks.h"

namespace lockstep {

// The form in which the cache keeps each image that was read.
enum class ImageCache {
  kOff,
  kEncoded,  // the files' bytes
  kDecoded,  // the pixels
};

struct ImageOptions {
  ImageSourceOptions source;
  // If set, the samples' targets are these masks and not the images' classes.
  std::optional<MaskOptions> masks{};
  int64_t size = 224;  // the side of the square that is cut out, in pixels
  CropOptions crop{};  // how images are cropped in training
  bool mirror = true;
  bool exif_orientation = false;  // whether pictures are turned according to their EXIF orientation
  double center = 0.875;          // the fraction of the shorter side that evaluation uses
  uint64_t seed = 0;
  // The GPU that decodes; empty: the CPU decodes. It must be empty with ImageCache::kDecoded.
  std::optional<at::Device> gpu{};
  ImageCache cache = ImageCache::kOff;
  std::shared_ptr<MemoryBudget> budget{};  // the memory for the cache; null: nothing is kept
};

// Opens the data set of images that `options` describe. Throws Error (kData, kUsage).
std::shared_ptr<const Dataset> OpenImages(const ImageOptions& options);

}  // namespace lockstep
