// Decodes WebP files in memory, with libwebp.
//
// Promise: the pixels are those that libwebp gives with its default options. Pillow uses the same options, so its
// pixels are equal. Transparency is dropped, and the colours stay as they are stored. A file may be lossy or lossless.
// A file that is cut short is refused. Other damage to a lossy file may not be noticed, because a lossy file has no
// checksum.
//
// what can fail -> what the caller sees -> the test that shows it (data/images/image_decoder_test.cc)
//   the file ends early, is damaged, is an animation -> Error (kData) -> WebpDecoder.Refuses*
//   no memory -> std::bad_alloc -> (none)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/images/image.h"

namespace lockstep {

// Returns the size of the image in `file`, which must begin like a WebP file. Throws Error (kData).
ImageSize WebpSize(std::span<const std::byte> file);

// Decodes `file`, whose image has the size `size`, to one byte for each of R, G and B, without gaps between rows.
// Throws Error (kData), std::bad_alloc.
void DecodeWebp(std::span<const std::byte> file, const ImageSize& size, uint8_t* rgb);

}  // namespace lockstep
