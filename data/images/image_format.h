// The formats of image files that Lockstep reads, and their names in messages.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

enum class ImageFormat { kNone, kJpeg, kPng, kWebp, kBmp };

inline constexpr char kImageFormats[] = "JPEG, PNG, WebP or BMP";
inline constexpr char kImageExtensions[] = ".jpg, .jpeg, .png, .webp or .bmp";

// FormatOf() compares at most this number of bytes, which are the first ones of a file.
inline constexpr size_t kFormatBytes = 18;

// Returns the format that the first bytes of `file` show, or kNone. If `file` is shorter than kFormatBytes, only the
// bytes that it has are compared. JPEG and BMP need at least two bytes, and the other formats four; for fewer bytes the
// result is kNone.
ImageFormat FormatOf(std::span<const std::byte> file);

}  // namespace lockstep
