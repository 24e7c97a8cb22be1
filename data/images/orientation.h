// Orientation: how a camera says that its picture must be turned before it is shown (EXIF, tag 0x0112).
//
// Promise: what Turn() writes is what Pillow's ImageOps.exif_transpose gives. Files without the tag, with a
// value beyond 1 to 8 or with EXIF data that is damaged are not turned.
//
// A part of a turned picture is cut without turning all of it: StoredBox() says where the part lies in the
// picture as it is stored, that is decoded and resized, and Turn() turns the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/images/image.h"

namespace lockstep {

// Pixel (x, y) of the turned picture is, of the stored one, (x, y) or, transposed, (y, x), each then counted
// from the other end where it is mirrored.
struct Orientation {
  bool transposed = false;
  bool mirrored_x = false;
  bool mirrored_y = false;

  bool turns() const { return transposed || mirrored_x || mirrored_y; }
};

// Of a JPEG file (its APP1 segment) or a PNG file (its eXIf chunk) in memory.
Orientation OrientationOf(std::span<const std::byte> file);

// The size of the turned picture.
ImageSize TurnedSize(const ImageSize& stored, const Orientation& orientation);

// Where `box` of the turned picture lies in the stored one.
Box StoredBox(const Box& box, const ImageSize& stored, const Orientation& orientation);

// Writes the turned picture, of 3 bytes a pixel and without gaps between rows, to `turned`; with `mirror`
// left and right are exchanged then.
void Turn(const ImageView& stored, const Orientation& orientation, bool mirror, uint8_t* turned);

}  // namespace lockstep
