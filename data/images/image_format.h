// The formats of image files that Lockstep reads, and their names in messages.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

enum class ImageFormat { kNone, kJpeg, kPng, kWebp, kBmp };

inline constexpr char kImageFormats[] = "JPEG, PNG, WebP or BMP";
inline constexpr char kImageExtensions[] = ".jpg, .jpeg, .png, .webp or .bmp";

// The number of bytes at a file's beginning by which FormatOf() knows it.
inline constexpr size_t kFormatBytes = 18;

// Returns the format that the file's first bytes show. A file that is cut short there counts as what it may have been,
// if it has at least four bytes; two are enough for JPEG and BMP.
ImageFormat FormatOf(std::span<const std::byte> file);

}  // namespace lockstep
