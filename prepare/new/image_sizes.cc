#include "prepare/new/image_sizes.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "data/images/image_decoder.h"

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

}  // namespace lockstep
