#include "data/feed/normalized_pixels.h"

#include "base/error.h"

namespace lockstep {
namespace {

// Sets out[i] to pixels[i] * scale[i] + shift[i] for each i < count. Compilers vectorise a loop of this form.
void MultiplyAdd(const uint8_t* __restrict pixels, const float* __restrict scale,
                 const float* __restrict shift, float* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(pixels[i]) * scale[i] + shift[i];
}

}  // namespace

Normalized::Normalized(const Dataset& whole, std::vector<float> scale, std::vector<float> shift)
    : WrappedDataset(whole), spec_(whole.spec()) {
  if (spec_.dtype != at::kByte) throw BugError("normalisation of {}", c10::toString(spec_.dtype));
  spec_.dtype = at::kFloat;
  const int64_t channels = spec_.shape[0];
  const int64_t height = spec_.shape[1];
  const int64_t width = spec_.shape[2];
  // If the channels are last, all rows have the same factors. Otherwise the factors differ between the planes of the
  // channels.
  const int64_t period = channels * width * (spec_.channels_last ? 1 : height);
  for (int64_t i = 0; i < period; ++i) {
    const int64_t channel = spec_.channels_last ? i % channels : i / (height * width);
    scale_.push_back(scale[channel]);
    shift_.push_back(shift[channel]);
  }
}

void Normalized::Read(int64_t index, int64_t epoch, std::byte* input, std::byte* target) const {
  static thread_local std::vector<std::byte> pixels;
  const int64_t count = whole_.spec().bytes();
  pixels.resize(count);
  whole_.Read(index, epoch, pixels.data(), target);
  const auto period = static_cast<int64_t>(scale_.size());
  for (int64_t begin = 0; begin < count; begin += period) {
    MultiplyAdd(reinterpret_cast<const uint8_t*>(pixels.data()) + begin, scale_.data(),
                shift_.data(), reinterpret_cast<float*>(input) + begin, period);
  }
}

}  // namespace lockstep
