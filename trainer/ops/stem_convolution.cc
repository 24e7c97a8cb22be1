#include "trainer/ops/stem_convolution.h"

#include <ATen/ATen.h>

namespace lockstep::ops {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
constexpr int64_t kBefore = 2;  // squares that an output's window begins before its own
constexpr int64_t kAfter = 1;

// 4 channels, filled up.
int64_t ChannelsOfSquares(int64_t channels) { return (4 * channels + 7) / 8 * 8; }

// Pixel (2 i + a, 2 j + b)'s channel c as channel (2 a + b) channels + c of (i, j), in a frame of zeros.
at::Tensor SquaresOf(const at::Tensor& x) {
  const int64_t count = x.size(0);
  const int64_t channels = x.size(1);
  const int64_t height = x.size(2) / 2;
  const int64_t width = x.size(3) / 2;
  const at::Tensor framed = at::zeros(
      {count, height + kBefore + kAfter, width + kBefore + kAfter, ChannelsOfSquares(channels)},
      x.options());
  framed.narrow(1, kBefore, height)
      .narrow(2, kBefore, width)
      .narrow(3, 0, 4 * channels)
      .unflatten(3, {2, 2, channels})
      .copy_(x.permute({0, 2, 3, 1})
                 .unflatten(2, {width, 2})
                 .unflatten(1, {height, 2})
                 .permute({0, 1, 3, 2, 4, 5}));
  return framed.permute({0, 3, 1, 2});
}

// [outputs, channels, 7, 7] for squares: [outputs, channels of squares, 4, 4].
at::Tensor WeightOfSquares(const at::Tensor& weight) {
  const int64_t outputs = weight.size(0);
  const int64_t channels = weight.size(1);
  const at::Tensor squares = at::constant_pad_nd(weight, {1, 0, 1, 0})
                                 .view({outputs, channels, 4, 2, 4, 2})
                                 .permute({0, 3, 5, 1, 2, 4})
                                 .reshape({outputs, 4 * channels, 4, 4});
  const int64_t more = ChannelsOfSquares(channels) - 4 * channels;
  return at::constant_pad_nd(squares, {0, 0, 0, 0, 0, more}).contiguous(kLast);
}

}  // namespace

at::Tensor StemConvolution(const at::Tensor& x, const at::Tensor& weight) {
  const bool is_16_bit = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const bool is_even = x.size(2) % 2 == 0 && x.size(3) % 2 == 0;
  if (!x.is_cuda() || !is_16_bit || !is_even) return StemConvolutionTwin(x, weight);
  return StemConvolutionOfSquares(x, weight);
}

at::Tensor StemConvolutionOfSquares(const at::Tensor& x, const at::Tensor& weight) {
  return at::conv2d(SquaresOf(x), WeightOfSquares(weight));
}

at::Tensor StemConvolutionTwin(const at::Tensor& x, const at::Tensor& weight) {
  return at::conv2d(x, weight, /*bias=*/{}, /*stride=*/2, /*padding=*/3);
}

}  // namespace lockstep::ops
