// A data set of JPEG, PNG, WebP and BMP files. Read() decodes an image, crops it and resizes it to the size of all
// samples.
//
// Promise: for given options, the result of Read() depends only on the epoch, the sample's number and the sample's
// files (the image and its mask), and, if a GPU decodes, on the GPU and the version of nvJPEG. It does not depend on
// the thread or on which images the cache holds.
//
// In training, Read() uses a different part of the image in each epoch (RandomCrop() in data/images/crop.h), and
// mirrors this part with probability 1/2 unless ImageOptions::mirror is false. The data set that Plain() returns (for
// validation) uses the middle of the image or, if there are masks, the whole image, stretched to a square. A sample's
// mask (data/images/masks.h) is cut from the mask's file with the same box and mirrored like the image; each output
// pixel gets the value of the nearest pixel of the file. On the CPU, Read() decodes only the part of a JPEG image that
// it needs, and all of an image in another format. Read() resizes the part with antialiasing. With
// ImageCache::kDecoded, Read() decodes the whole image at its own size, even if the cache has no room for the image,
// because samples must not depend on which images the cache holds.
//
// Each thread keeps the objects with which it decodes and resizes (data/images/image_decoder.h, data/images/resize.h).
// With ImageOptions::gpu a GPU decodes the files that its decoder supports, many at once (data/images/gpu_decoder.h).
// The loader's thread decodes the other files, and those that the GPU's decoder could not decode.
//
// data/feed/image_cache_bench.cc measures how much faster a cache makes Read().
//
// what can fail -> what the caller sees -> the test that shows it (data/feed/image_folder_test.cc)
//   files that cannot be listed as classes -> Error (kData) (data/images/open_images.h)
//   a file that is damaged, of another kind, or removed after the listing -> Error (kData) from Read() with its name
//     -> ImageFolderTest.NamesTheFileThatCannotBeRead
//   a mask of another size than its image -> Error (kData) from Read() naming both
//     -> MaskedImages.HaveMasksOfTheirSize (data/images/masks_test.cc)
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
  int64_t size = 224;  // the side of a sample, which is a square, in pixels
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
