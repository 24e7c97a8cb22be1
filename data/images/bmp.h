// Reads BMP files in memory: the uncompressed kinds that Windows' programs, GIMP, OpenCV and Pillow write.
//
// Promise: the pixels equal Pillow's. A file may have 1, 4 or 8 bits a pixel and a palette, or 24 bits a pixel, or 32
// bits a pixel with or without masks that say in which byte each colour lies. Its rows may be stored from the bottom up
// or from the top down. The byte of a 32-bit pixel that holds no colour is dropped. The code checks that bytes lie
// before the end of the file before it reads them.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_decoder_test.cc)
//   the file ends early -> Error (kData), 'truncated' -> BmpDecoder.RefusesTruncatedFiles
//   compressed pixels, 16 bits a pixel, headers of OS/2, colours outside the palette -> Error (kData), which says so
//     -> BmpDecoder.RefusesOtherKindsAndDamage
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/images/image.h"

namespace lockstep {

// Returns the size of the image in `file`, which must begin like a BMP file. The caller must check the size: the image
// may have no pixels, or too many of them. Throws Error (kData).
ImageSize BmpSize(std::span<const std::byte> file);

// Decodes `file`, whose BmpSize() the caller has checked, to one byte for each of R, G and B, without gaps between
// rows. Throws Error (kData).
void DecodeBmp(std::span<const std::byte> file, uint8_t* rgb);

}  // namespace lockstep
