#include "data/feed/augment.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "data/dataset/sample_random.h"

namespace lockstep {
namespace {

// This number is added to the seed, because a sample's crop is drawn with the same seed. Without kSalt, the colours of
// a sample would depend on its crop.
constexpr uint64_t kSalt = 0x6175676d656e74;

double Normal(SampleRandom& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.Uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.Uniform());
}

// Returns the logarithm of a number drawn from Gamma(shape, 1) (Marsaglia and Tsang 2000). For a small `shape`, the
// number itself may be too small for a double.
double LogGamma(double shape, SampleRandom& random) {
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = Normal(random);
    const double root = 1 + c * x;
    const double u = 1 - random.Uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) >= x * x / 2 + d * (1 - v + std::log(v))) continue;
    const double log_gamma = std::log(d * v);
    return shape < 1 ? log_gamma + std::log(1 - random.Uniform()) / shape : log_gamma;
  }
}

// Draws a number from Beta(a, a).
double Beta(double a, SampleRandom& random) {
  a = std::max(a, 1e-100);  // for a smaller `a`, the exponent below may be NaN
  const double first = LogGamma(a, random);
  return 1 / (1 + std::exp(LogGamma(a, random) - first));
}

void DrawColours(const AugmentOptions& options, SampleRandom& random, float* draws) {
  float* order = draws + kOrder;
  for (int i = 0; i < kColourOperations; ++i) order[i] = static_cast<float>(i);
  for (int i = kColourOperations - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<int>((i + 1) * random.Uniform())]);
  }
  const auto around = [&](double middle, double range) {
    return static_cast<float>(random.Uniform(middle - range, middle + range));
  };
  draws[kBrightness] = around(1, options.brightness);
  draws[kContrast] = around(1, options.contrast);
  draws[kSaturation] = around(1, options.saturation);
  draws[kHue] = around(0, options.hue);
}

void SetMixture(double left, double top, double right, double bottom, double own_in_box,
                double own_in_loss, float* draws) {
  draws[kLeft] = static_cast<float>(left);
  draws[kTop] = static_cast<float>(top);
  draws[kRight] = static_cast<float>(right);
  draws[kBottom] = static_cast<float>(bottom);
  draws[kOwnInBox] = static_cast<float>(own_in_box);
  draws[kOwnInLoss] = static_cast<float>(own_in_loss);
}

void DrawCutmix(double own, const ImageSize& image, SampleRandom& random, float* draws) {
  const auto width = static_cast<double>(image.width);
  const auto height = static_cast<double>(image.height);
  const double x = std::floor(random.Uniform() * width);
  const double y = std::floor(random.Uniform() * height);
  const double half_side = 0.5 * std::sqrt(1 - own);  // half of (the box's side / the image's side)
  const double half_width = std::floor(half_side * width);
  const double half_height = std::floor(half_side * height);
  const double left = std::max(x - half_width, 0.0);
  const double top = std::max(y - half_height, 0.0);
  const double right = std::min(x + half_width, width);
  const double bottom = std::min(y + half_height, height);
  const double area = (right - left) * (bottom - top) / (width * height);
  SetMixture(left, top, right, bottom, 0, 1 - area, draws);
}

}  // namespace

void DrawAugmentation(const AugmentOptions& options, const ImageSize& image, int64_t epoch,
                      int64_t index, float* draws) {
  SampleRandom random(Mix(options.seed + kSalt), epoch, index);
  DrawColours(options, random, draws);
  SetMixture(0, 0, 0, 0, 1, 1, draws);
  if (!options.Mixes()) return;
  const bool both = options.mixup > 0 && options.cutmix > 0;
  const bool cuts = both ? random.Uniform() < 0.5 : options.cutmix > 0;
  const double own = Beta(cuts ? options.cutmix : options.mixup, random);
  if (cuts) return DrawCutmix(own, image, random, draws);
  SetMixture(0, 0, static_cast<double>(image.width), static_cast<double>(image.height), own, own,
             draws);
}

at::Tensor EmptyDraws(const AugmentOptions& options, int64_t count, at::TensorOptions where) {
  if (!options.Any()) return {};
  return at::empty({count, kAugmentDraws}, where.dtype(at::kFloat));
}

}  // namespace lockstep
