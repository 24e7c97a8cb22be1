// Orientation: says how a picture must be turned before it is shown. Cameras store this in the file (EXIF, tag 0x0112).
//
// Promise: Turn() writes the same pixels as Pillow's ImageOps.exif_transpose. A picture is not turned if its file has
// no such tag, a value outside 1 to 8, or damaged EXIF data.
//
// To crop a turned picture, the caller need not turn the whole picture. StoredBox() says where the crop lies in the
// picture as it is stored. The caller decodes and resizes this box, and Turn() turns the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/images/image.h"

namespace lockstep {

// The way in which a picture is turned. Pixel (x, y) of the turned picture is pixel (x, y) of the stored picture, or
// pixel (y, x) if `transposed`. If `mirrored_x`, the x coordinate of the stored pixel is counted from the right edge;
// if `mirrored_y`, its y coordinate is counted from the bottom edge.
struct Orientation {
  bool transposed = false;
  bool mirrored_x = false;
  bool mirrored_y = false;

  bool turns() const { return transposed || mirrored_x || mirrored_y; }
};

// Returns the orientation of a JPEG file (from its APP1 segment), a PNG file (from its eXIf chunk) or a WebP file (from
// its EXIF chunk) in memory. BMP files have none.
Orientation OrientationOf(std::span<const std::byte> file);

// Returns the size of the turned picture, where `stored` is the size of the stored picture.
ImageSize TurnedSize(const ImageSize& stored, const Orientation& orientation);

// Returns the box of the stored picture that becomes `box` of the turned picture.
Box StoredBox(const Box& box, const ImageSize& stored, const Orientation& orientation);

// Writes the turned picture to `turned`, with 3 bytes for each pixel and without gaps between rows. With `mirror`, left
// and right of the turned picture are exchanged.
void Turn(const ImageView& stored, const Orientation& orientation, bool mirror, uint8_t* turned);

}  // namespace lockstep
