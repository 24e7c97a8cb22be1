#include "data/images/orientation.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "data/images/image_format.h"

namespace lockstep {
namespace {

constexpr int64_t kChannels = 3;
constexpr std::string_view kExif("Exif\0\0", 6);  // the bytes before EXIF data in an APP1 segment

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the number of `count` bytes at the offset `at`, which is little-endian if `little` is true, and otherwise
// big-endian. Returns nullopt if these bytes reach beyond the end of `bytes`.
std::optional<uint32_t> NumberAt(std::string_view bytes, size_t at, size_t count, bool little) {
  if (at > bytes.size() || count > bytes.size() - at) return std::nullopt;
  uint32_t number = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t place = little ? count - 1 - i : i;
    number = number << 8 | static_cast<uint8_t>(bytes[at + place]);
  }
  return number;
}

// Returns the value of the orientation tag in EXIF data, which have the format of a TIFF file without pictures. Returns
// 1 if there is no such tag, or if the data are damaged.
uint32_t ValueIn(std::string_view tiff) {
  constexpr size_t kFirstDirectoryAt = 4, kEntryBytes = 12, kValueAt = 8;
  constexpr uint32_t kTag = 0x0112, kShort = 3;
  const bool little = tiff.starts_with("II");
  if (!little && !tiff.starts_with("MM")) return 1;
  const auto number = [&](size_t at, size_t count) { return NumberAt(tiff, at, count, little); };
  const std::optional<uint32_t> directory = number(kFirstDirectoryAt, 4);
  if (!directory) return 1;
  const uint32_t entries = number(*directory, 2).value_or(0);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = size_t{*directory} + 2 + i * kEntryBytes;
    const std::optional<uint32_t> tag = number(entry, 2);
    if (!tag) return 1;
    if (*tag != kTag) continue;
    return number(entry + 2, 2) == kShort ? number(entry + kValueAt, 2).value_or(1) : 1;
  }
  return 1;
}

// Returns the EXIF data of a JPEG file, or an empty view if the file has none.
std::string_view InJpeg(std::string_view file) {
  constexpr uint8_t kStartOfScan = 0xda, kApp1 = 0xe1;
  size_t at = 2;
  while (at + 4 <= file.size() && file[at] == '\xff') {
    const auto marker = static_cast<uint8_t>(file[at + 1]);
    if (marker == 0xff) {  // a fill byte before a marker
      ++at;
      continue;
    }
    if (marker == kStartOfScan) break;
    const uint32_t bytes =
        *NumberAt(file, at + 2, 2, /*little=*/false);  // the segment's length, including this field
    if (bytes < 2 || at + 2 + bytes > file.size()) break;
    const std::string_view segment = file.substr(at + 4, bytes - 2);
    if (marker == kApp1 && segment.starts_with(kExif)) return segment.substr(kExif.size());
    at += 2 + bytes;
  }
  return {};
}

// Returns the EXIF data of a PNG file, or an empty view if the file has none.
std::string_view InPng(std::string_view file) {
  constexpr size_t kSignature = 8, kHead = 8, kChecksum = 4;
  size_t at = kSignature;
  while (at + kHead <= file.size()) {
    const size_t bytes = *NumberAt(file, at, 4, /*little=*/false);
    const std::string_view type = file.substr(at + 4, 4);
    at += kHead;
    if (bytes > file.size() - at) break;
    if (type == "eXIf") return file.substr(at, bytes);
    at += bytes + kChecksum;
  }
  return {};
}

// Returns the EXIF data of a WebP file, without the "Exif\0\0" that some programs write before the data, or an empty
// view if the file has none.
std::string_view InWebp(std::string_view file) {
  constexpr size_t kRiffHead = 12, kHead = 8;
  size_t at = kRiffHead;
  while (at + kHead <= file.size()) {
    const size_t bytes = *NumberAt(file, at + 4, 4, /*little=*/true);
    const std::string_view type = file.substr(at, 4);
    at += kHead;
    if (bytes > file.size() - at) break;
    if (type == "EXIF") {
      const std::string_view exif = file.substr(at, bytes);
      return exif.starts_with(kExif) ? exif.substr(kExif.size()) : exif;
    }
    at += bytes + bytes % 2;
  }
  return {};
}

// Returns the EXIF data of an image file of any format, or an empty view if the file has none.
std::string_view ExifIn(std::span<const std::byte> file) {
  switch (FormatOf(file)) {
    case ImageFormat::kJpeg:
      return InJpeg(AsText(file));
    case ImageFormat::kPng:
      return InPng(AsText(file));
    case ImageFormat::kWebp:
      return InWebp(AsText(file));
    default:
      return {};
  }
}

}  // namespace

Orientation OrientationOf(std::span<const std::byte> file) {
  switch (ValueIn(ExifIn(file))) {
    case 2:
      return {.mirrored_x = true};
    case 3:
      return {.mirrored_x = true, .mirrored_y = true};
    case 4:
      return {.mirrored_y = true};
    case 5:
      return {.transposed = true};
    case 6:
      return {.transposed = true, .mirrored_y = true};
    case 7:
      return {.transposed = true, .mirrored_x = true, .mirrored_y = true};
    case 8:
      return {.transposed = true, .mirrored_x = true};
    default:
      return {};
  }
}

ImageSize TurnedSize(const ImageSize& stored, const Orientation& orientation) {
  return orientation.transposed ? ImageSize{stored.height, stored.width} : stored;
}

Box StoredBox(const Box& box, const ImageSize& stored, const Orientation& orientation) {
  Box in_stored = box;
  if (orientation.transposed) in_stored = {box.y, box.x, box.height, box.width};
  if (orientation.mirrored_x) {
    in_stored.x = static_cast<double>(stored.width) - in_stored.x - in_stored.width;
  }
  if (orientation.mirrored_y) {
    in_stored.y = static_cast<double>(stored.height) - in_stored.y - in_stored.height;
  }
  return in_stored;
}

void Turn(const ImageView& stored, const Orientation& orientation, bool mirror, uint8_t* turned) {
  const ImageSize size = TurnedSize({stored.width, stored.height}, orientation);
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t x = 0; x < size.width; ++x, turned += kChannels) {
      int64_t from_x = mirror ? size.width - 1 - x : x;
      int64_t from_y = y;
      if (orientation.transposed) std::swap(from_x, from_y);
      if (orientation.mirrored_x) from_x = stored.width - 1 - from_x;
      if (orientation.mirrored_y) from_y = stored.height - 1 - from_y;
      std::memcpy(turned, stored.pixels + from_y * stored.stride + from_x * kChannels, kChannels);
    }
  }
}

}  // namespace lockstep
