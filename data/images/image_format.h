// The formats of image files that Lockstep reads, and their names in messages.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

enum class ImageFormat { kNone, kJpeg, kPng, kWebp, kBmp };

inline constexpr char kImageFormats[] = "JPEG, PNG, WebP or BMP";
inline constexpr char kImageExtensions[] = ".jpg, .jpeg, .png, .webp or .bmp";

// The number of bytes at a file's beginning that FormatOf() needs to tell the format.
inline constexpr size_t kFormatBytes = 18;

// Returns the format that the file's first bytes show. If the file is shorter than kFormatBytes, the bytes that it has
// are compared; at least four are needed, or two for JPEG and BMP.
ImageFormat FormatOf(std::span<const std::byte> file);

}  // namespace lockstep
