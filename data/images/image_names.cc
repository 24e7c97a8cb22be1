#include "data/images/image_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/small_letters.h"
#include "data/images/image_format.h"

namespace lockstep {
namespace {

// Returns the extension of the file `name` in small letters, without the dot. Returns an empty string if the file has
// no extension.
std::string ExtensionOf(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  return dot == name.npos ? "" : InSmallLetters(name.substr(dot + 1));
}

}  // namespace

bool IsImageName(std::string_view name) {
  const std::string extension = ExtensionOf(name);
  return extension == "jpg" || extension == "jpeg" || extension == "png" || extension == "webp" ||
         extension == "bmp";
}

LeftOut::Kind LeftOut::KindOf(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kOtherImages{
      "gif", "tif", "tiff", "avif", "heic", "heif", "jfif", "jxl", "ppm"};
  return std::ranges::find(kOtherImages, ExtensionOf(name)) != kOtherImages.end() ? kImages
                                                                                  : kFiles;
}

void LeftOut::Add(const LeftOut& more, std::string_view prefix) {
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Some& some = more.some_[kind];
    if (some.count > 0) Add(static_cast<Kind>(kind), some.count, prefix, some.first);
  }
}

void LeftOut::Add(Kind kind, int64_t count, std::string_view prefix, std::string_view name) {
  Some& some = some_[kind];
  // If `name` does not come before some.first, which is the usual case, no path has to be made.
  if (prefix.empty() && some.count > 0 && some.first <= name) {
    some.count += count;
    return;
  }
  std::string path = fmt::format("{}{}", prefix, name);
  if (some.count == 0 || path < some.first) some.first = std::move(path);
  some.count += count;
}

std::vector<std::string> LeftOut::Lines() const {
  static const std::array<std::string, kKinds> kWhy{
      fmt::format("not {}: convert such images (ImageMagick's mogrify -format png does)",
                  kImageFormats),
      fmt::format("not named {}", kImageExtensions),
      "a link to a folder, which is followed for a class only",
      "hidden (a name that begins with a dot, or a system's folder such as __MACOSX)",
      "a label whose sample has no image (a sample's name ends at the first dot)",
      "a further image of a sample (a sample's name ends at the first dot)",
      "a mask that is named like no image, or the second one of an image"};
  std::vector<std::string> lines;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const Some& some = some_[kind];
    if (some.count == 0) continue;
    lines.push_back(fmt::format("{}{} left out: {}", some.first,
                                some.count == 1 ? " is"
                                : some.count == 2
                                    ? " and another one are"
                                    : fmt::format(" and {} others are", some.count - 1),
                                kWhy[kind]));
  }
  return lines;
}

bool IsShardName(std::string_view name) { return ExtensionOf(name) == "tar"; }

bool IsMaskName(std::string_view name) { return ExtensionOf(name) == "png"; }

bool IsLabelName(std::string_view name) { return ExtensionOf(name) == "cls"; }

}  // namespace lockstep
