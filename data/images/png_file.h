// Decodes PNG files in memory, and encodes grey images as PNG files, with libpng.
//
// Promise: a decode reads the whole file and compares its checksums. DecodePng() converts palettes and grey to RGB,
// keeps the upper 8 bits of 16-bit samples, drops transparency and leaves the colours as stored (as in PIL).
// DecodePngMask() writes for each pixel the number of 1 to 8 bits that the file holds for the pixel: the index in the
// palette, or the grey level.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_decoder_test.cc, masks_test.cc)
//   the file ends early, or is damaged -> Error (kData) -> PngDecoder.Refuses*
//   a mask of 16 bits, or with a pixel that is neither grey nor of a palette -> Error (kData) -> Masks.RefusesFiles
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "data/images/image.h"

namespace lockstep {

// Returns the size of the image in `file`, which must begin like a PNG file. The caller must check the size: the image
// may have no pixels, or too many of them. Throws Error (kData).
ImageSize PngSize(std::span<const std::byte> file);

// Decodes `file`, whose PngSize() the caller has checked, to one byte for each of R, G and B, without gaps between
// rows. Throws Error (kData), std::bad_alloc.
void DecodePng(std::span<const std::byte> file, uint8_t* rgb);

// Decodes `file` like DecodePng(), but to one byte for each pixel, the value of a mask. An RGB file is accepted as a
// mask if all of its pixels are grey.
void DecodePngMask(std::span<const std::byte> file, uint8_t* mask);

// Returns a PNG file whose pixels have the grey levels `levels`, row by row. Throws Error (kBug) if libpng fails, and
// std::bad_alloc.
std::string EncodeGreyPng(const ImageSize& size, std::span<const uint8_t> levels);

}  // namespace lockstep
