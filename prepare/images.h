// `lockstep prepare images`: makes a smaller copy of a folder of images, as JPEG files.
//
// Promise: the folder DST holds each image file below the folder SRC as a JPEG file, under the same name (.png, .webp
// and .bmp become .jpg). If the shorter side of an image is longer than `size`, the image is reduced: its shorter side
// becomes `size`, and its longer side keeps the proportion, rounded down. These are the sizes that torchvision's Resize
// gives. Images are reduced with antialiasing (data/images/resize.h). No image is enlarged. A JPEG file that is small
// enough and need not be turned is copied, byte for byte. Every image is decoded once, even if its file is copied. The
// same source and options give the same bytes. Neither the number of threads nor interruptions change the bytes
// (prepare/output_folder.h).
//
// The JPEG files that are written have chroma subsampling 4:2:0, like those of cameras and the photographs of ImageNet.
// With 4:4:4 the edges of colours would be sharper, but the files would be 1.22 times as large and take 1.25 times as
// long to decode (crops of photographs at 256 pixels and quality 90; tests/bench/prepare_against_python.py). The
// Huffman tables are the standard ones. Tables made for each image would make its file 2 % smaller, but would need a
// second pass over the image.
//
// A camera may store a picture sideways, with an EXIF tag that says how a viewer must turn the picture. With
// exif_orientation this command turns such pictures, so no picture in DST needs turning. Without exif_orientation the
// pictures stay as they are stored. A JPEG file that the command encodes anew does not have the tag.
//
// what can fail -> what the caller sees -> the test that shows it (prepare/images_test.cc)
//   two sources would become a file of the same name (a.png, a.jpg) -> Error (kData) before anything is written
//     -> Images.RefusesNamesThatClash
//   a source would become a file with the name of a folder (a.png, a.jpg/b.jpg) -> Error (kData) before anything is
//     written -> Images.RefusesFilesInThePlaceOfFolders
//   an image that cannot be decoded -> Error (kData) with its path, or with skip_bad a line in
//     DST/skipped.txt: name, tab, reason -> Images.StopsOrSkips
//   not enough memory for the images that the threads decode -> Error (kUsage), also with skip_bad
//     -> (none)
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct PrepareImagesOptions {
  std::string source;
  std::string destination;
  int64_t size = 0;  // the maximum of the shorter side, in pixels
  int quality = 90;  // the quality of libjpeg
  bool skip_bad = false;
  bool exif_orientation = false;  // whether pictures are turned according to their EXIF orientation
  int threads = 1;
  bool live = false;  // whether standard output is a terminal
};

// Prepares the images. Returns one line that says what was done. Throws Error (kUsage, kData).
std::string PrepareImages(const PrepareImagesOptions& options);

}  // namespace lockstep
