// A data set of JPEG, PNG, WebP and BMP files. Read() decodes an image, crops it and resizes it to the size of all
// samples.
//
// Promise: the result of Read() depends only on the file, the seed, the epoch and the sample's number. It does not
// depend on the thread or on which images the cache holds.
//
// In training, Read() uses a different part of the image in each epoch (RandomCrop() in data/images/crop.h), and
// mirrors this part with probability 1/2. The data set that Plain() returns (for validation) uses the middle of the
// image or, if there are masks, the whole image, stretched to a square. A sample's mask (data/images/masks.h) is cut
// from the mask's file with the same box and mirrored like the image; each output pixel gets the value of the nearest
// pixel of the file. Read() decodes only the part of the image that it needs, and resizes this part with antialiasing.
// With ImageCache::kDecoded, Read() decodes the whole image at its own size, even if the cache has no room for the
// image, because samples must not depend on which images the cache holds.
//
// Each thread keeps the objects with which it decodes and resizes (data/images/image_decoder.h, data/images/resize.h).
// With ImageOptions::gpu a GPU decodes the files that its decoder supports, many at once (data/images/gpu_decoder.h).
// The loader's thread decodes the other files, and those that the GPU's decoder finds damaged.
//
// data/feed/image_cache_bench.cc measures how much faster a cache makes Read().
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/image_folder_test.cc)
//   files that cannot be listed as classes -> Error (kData) (data/images/image_source.h)
//   a file that is damaged, of another kind, or removed after the listing -> Error (kData) from Read() with its name
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
  kEncoded,  // the bytes of its file
  kDecoded,  // the pixels of the whole image
};

struct ImageOptions {
  ImageSourceOptions source;
  // If `masks` is set, a sample's target is its mask and not the class of its image.
  std::optional<MaskOptions> masks{};
  int64_t size = 224;  // the side of the square that is cut out, in pixels
  CropOptions crop{};  // how images are cropped in training
  bool mirror = true;
  bool exif_orientation = false;  // whether pictures are turned according to their EXIF orientation
  double center = 0.875;          // the fraction of the shorter side that Plain() uses
  uint64_t seed = 0;
  // The GPU that decodes; nullopt: the CPU decodes. With ImageCache::kDecoded, `gpu` must be nullopt.
  std::optional<at::Device> gpu{};
  ImageCache cache = ImageCache::kOff;
  std::shared_ptr<MemoryBudget> budget{};  // the memory for the cache; null: nothing is kept
};

// Returns the data set of images that `options` describe, with random crops for training. Throws Error (kData, kUsage).
std::shared_ptr<const Dataset> OpenImages(const ImageOptions& options);

}  // namespace lockstep
