#include "prepare/new/image_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "data/images/image_decoder.h"
#include "prepare/new/names.h"

namespace lockstep {

ImageSizes SizesOf(const ImageSource& source) {
  constexpr int64_t kMost = 100;
  const int64_t count = std::min(kMost, source.size());
  std::vector<int64_t> sides;
  ImageSizes sizes;
  ImageDecoder decoder;
  std::vector<std::byte> buffer;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t image = i * source.size() / count;
    try {
      const ImageSize size = decoder.Open(source.Load(image, buffer));
      sides.push_back(std::min(size.width, size.height));
    } catch (const Error& error) {
      if (sizes.damaged.empty()) sizes.damaged = source.NameOf(image) + ": " + error.what();
    }
  }
  if (sides.empty()) throw DataError("{}", sizes.damaged);
  std::ranges::nth_element(sides, sides.begin() + static_cast<int64_t>(sides.size() / 2));
  sizes.shorter_side = sides[sides.size() / 2];
  return sizes;
}

int64_t SideFor(const ImageSizes& sizes, std::span<const int64_t> sides) {
  const auto side = std::ranges::find_if(
      sides, [&](int64_t candidate) { return sizes.shorter_side >= candidate * 7 / 8; });
  return side == sides.end() ? 32 : *side;
}

std::string FoundText(const std::string& folder, const std::string& what, const ImageSizes& sizes) {
  return fmt::format("{}: {}, shorter side {} pixels in the median", NameOfFile(folder), what,
                     sizes.shorter_side);
}

void BeginImages(int64_t side, const ImageSizes& sizes, ConfigText& config) {
  config.Comment(
      "Means and deviations of ImageNet's colours, which torchvision's weights expect, too.");
  config.Line("mean: [0.485, 0.456, 0.406] std: [0.229, 0.224, 0.225]");
  config.Open("images");
  config.Line(fmt::format("size: {}", side),
              fmt::format("the shorter sides have {} pixels in the median", sizes.shorter_side));
}

void WriteDamaged(const ImageSizes& sizes, ConfigText& config) {
  if (sizes.damaged.empty()) return;
  config.Comment("Damaged: " + sizes.damaged);
  config.Line("bad_samples { policy: SKIP limit: 1000 }",
              "another image takes the place of such ones");
}

}  // namespace lockstep
