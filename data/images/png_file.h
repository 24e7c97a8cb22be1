// Decodes PNG files in memory, and writes grey ones, with libpng.
//
// Promise: a decode reads the whole file and compares its checksums. As RGB, a palette and grey become RGB, samples of
// 16 bits keep their upper 8 bits, transparency is dropped, and the colours stay as stored (as in PIL). As a mask, each
// pixel is the number that the file holds: the place in its palette, or the grey level, of 1 to 8 bits.
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

// Returns the size of the image in `file`, which begins as a PNG file. It may have no pixels, or too many of them.
// Throws Error (kData).
ImageSize PngSize(std::span<const std::byte> file);

// Decodes `file`, whose PngSize() is a possible one, to one byte for each of R, G and B, without gaps between rows.
// Throws Error (kData), std::bad_alloc.
void DecodePng(std::span<const std::byte> file, uint8_t* rgb);

// Decodes a mask likewise, to one byte for each pixel. A file of RGB is a mask if all of its pixels are grey.
void DecodePngMask(std::span<const std::byte> file, uint8_t* mask);

// Returns a PNG file with these grey levels, row by row. Throws std::bad_alloc.
std::string EncodeGreyPng(const ImageSize& size, std::span<const uint8_t> levels);

}  // namespace lockstep
