#include "data/images/crop.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
Box RandomCrop(const ImageSize& image, const CropOptions& options, SampleRandom& random) {
  constexpr int kAttempts = 10;
  const auto image_width = static_cast<double>(image.width);
  const auto image_height = static_cast<double>(image.height);
  const double log_stretch = std::log(options.max_stretch);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double area =
        image_width * image_height * random.Uniform(options.min_area, options.max_area);
    const double shape = std::exp(random.Uniform(-log_stretch, log_stretch));
    const double width = std::nearbyint(std::sqrt(area * shape));
    const double height = std::nearbyint(std::sqrt(area / shape));
    if (width < 1 || height < 1 || width > image_width || height > image_height) continue;
    return {.x = std::floor(random.Uniform() * (image_width - width + 1)),
            .y = std::floor(random.Uniform() * (image_height - height + 1)),
            .width = width,
            .height = height};
  }
  // If no attempt succeeds (usually because the image is far from square), the crop is the largest box in the middle of
  // the image whose shape is allowed. Its place is a whole number of pixels, rounded down.
  const double shape =
      std::clamp(image_width / image_height, 1 / options.max_stretch, options.max_stretch);
  const double width = std::min(image_width, std::max(1.0, std::nearbyint(image_height * shape)));
  const double height = std::min(image_height, std::max(1.0, std::nearbyint(image_width / shape)));
  return {.x = std::floor((image_width - width) / 2),
          .y = std::floor((image_height - height) / 2),
          .width = width,
          .height = height};
}

Box CenterCrop(const ImageSize& image, double share) {
  const double side =
      std::max(1.0, share * static_cast<double>(std::min(image.width, image.height)));
  return {.x = (static_cast<double>(image.width) - side) / 2,
          .y = (static_cast<double>(image.height) - side) / 2,
          .width = side,
          .height = side};
}

}  // namespace lockstep
