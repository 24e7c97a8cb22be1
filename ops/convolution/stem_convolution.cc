#include "ops/convolution/stem_convolution.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/ceil_divide.h"
#include "ops/common/launch_arguments.h"
#include "ops/common/rounded_weight.h"
#include "ops/common/second_derivative.h"
#include "ops/convolution/convolution.h"
#include "ops/convolution/convolution_planner.h"
#include "ops/convolution/stem_convolution_kernel.h"
#include "ops/product/weight_gradient.h"

namespace lockstep::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;
constexpr int kBefore = 2;  // how many squares a window has before the square of its output pixel
constexpr int kAfter = 1;   // how many squares a window has after the square of its output pixel

// Returns the number of channels of a square: 4 * channels, rounded up to a multiple of 8.
int64_t ChannelsOfSquares(int64_t channels) { return RoundUp(4 * channels, 8); }

// Returns the part of framed squares, [count, rows, columns, channels of a square], that holds the image, as a view
// [count, height / 2, 2, width / 2, 2, channels]. Element (n, i, a, j, b, c) of the view is channel c of pixel (2 i +
// a, 2 j + b) of image n.
at::Tensor ImageIn(const at::Tensor& framed, int64_t channels) {
  return framed.narrow(1, kBefore, framed.size(1) - kBefore - kAfter)
      .narrow(2, kBefore, framed.size(2) - kBefore - kAfter)
      .narrow(3, 0, 4 * channels)
      .unflatten(3, {2, 2, channels})
      .permute({0, 1, 3, 2, 4, 5});
}

// Returns the images, [count, channels, height, width], that `squares` hold. This is the reverse of SquaresOf().
at::Tensor ImageOfSquares(const at::Tensor& squares, int64_t channels) {
  return ImageIn(squares.permute({0, 2, 3, 1}), channels)
      .permute({0, 5, 1, 2, 3, 4})
      .flatten(4, 5)
      .flatten(2, 3);
}

std::vector<int64_t> FramedSizes(const at::Tensor& x) {
  return {x.size(0), x.size(2) / 2 + kBefore + kAfter, x.size(3) / 2 + kBefore + kAfter,
          ChannelsOfSquares(x.size(1))};
}

// Returns the squares of x with a frame of zeros around them, channels last.
at::Tensor SquaresOf(const at::Tensor& x) {
  const at::Tensor framed = at::zeros(FramedSizes(x), x.options());
  ImageIn(framed, x.size(1))
      .copy_(x.permute({0, 2, 3, 1}).unflatten(2, {-1, 2}).unflatten(1, {-1, 2}));
  return framed.permute({0, 3, 1, 2});
}

// Converts a weight [outputs, channels, 7, 7] to the weight for squares, [outputs, channels of a square, 4, 4].
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

// Computes SquaresOf() with one kernel, without a gradient.
at::Tensor FusedSquares(const at::Tensor& x) {
  const at::Tensor framed = at::empty(FramedSizes(x), x.options());
  Launch(x, [&](cudaStream_t stream) {
    LaunchSquares(x.const_data_ptr(), framed.mutable_data_ptr(),
                  {.count = x.size(0),
                   .channels = static_cast<int>(x.size(1)),
                   .height = static_cast<int>(x.size(2)),
                   .width = static_cast<int>(x.size(3)),
                   .framed_height = static_cast<int>(framed.size(1)),
                   .framed_width = static_cast<int>(framed.size(2)),
                   .framed_channels = static_cast<int>(framed.size(3)),
                   .frame = kBefore,
                   .strides = {x.stride(0), x.stride(1), x.stride(2), x.stride(3)}},
                  stream);
  });
  return framed.permute({0, 3, 1, 2});
}

StemWeightShape ShapeOf(const at::Tensor& weight) {
  return {.outputs = weight.size(0),
          .channels = static_cast<int>(weight.size(1)),
          .framed_channels = static_cast<int>(ChannelsOfSquares(weight.size(1))),
          .strides = {weight.stride(0), weight.stride(1), weight.stride(2), weight.stride(3)}};
}

// Computes WeightOfSquares() with one kernel, without a gradient.
at::Tensor FusedWeightOfSquares(const at::Tensor& weight) {
  const StemWeightShape shape = ShapeOf(weight);
  const at::Tensor of_squares =
      at::empty({shape.outputs, shape.framed_channels, 4, 4}, weight.options(), kLast);
  Launch(weight, [&](cudaStream_t stream) {
    LaunchWeightOfSquares(weight.const_data_ptr(), of_squares.mutable_data_ptr(), shape, stream);
  });
  return of_squares;
}

// Returns the shape of the convolution of `squares`, for forward and for backward.
StemShape ShapeOf(const at::Tensor& squares, int64_t outputs) {
  const GpuTraits gpu = TraitsOf(squares.device());
  return {.count = squares.size(0),
          .outputs = outputs,
          .height = static_cast<int>(squares.size(2)) - kBefore - kAfter,
          .width = static_cast<int>(squares.size(3)) - kBefore - kAfter,
          .framed_channels = static_cast<int>(squares.size(1)),
          .multiprocessors = gpu.multiprocessors,
          .major = gpu.major};
}

// Computes the convolution of x from its squares. `weight` is the rounded 7x7 weight. `trains` says whether a backward
// may follow.
at::Tensor Convolved(const at::Tensor& x, const at::Tensor& squares, const at::Tensor& weight,
                     bool trains) {
  const at::Tensor of_squares = FusedWeightOfSquares(weight);
  const StemShape shape = ShapeOf(squares, weight.size(0));
  if (!HasStemForward(shape)) return PlannedConvolution(squares, of_squares, {.searches = trains});
  // The event makes the convolution visible to profilers and to code that counts floating-point operations.
  RECORD_FUNCTION(kConvolutionEvent,
                  ConvolutionEventInputs(x, weight, /*stride=*/2, /*padding=*/3));
  const at::Tensor y =
      at::empty({shape.count, shape.outputs, shape.height, shape.width}, x.options(), kLast);
  Launch(x, [&](cudaStream_t stream) {
    LaunchStemForward(squares.const_data_ptr(), of_squares.const_data_ptr(), TypeOf(x),
                      y.mutable_data_ptr(), shape, stream);
  });
  return y;
}

// Returns the gradient of the weight for squares as float32 partial sums, [parts, outputs, 4, 4, channels of a square],
// which the caller must add up. `dy` must be channels last and aligned.
at::Tensor PartsOfGradient(const at::Tensor& dy, const at::Tensor& squares) {
  const StemShape shape = ShapeOf(squares, dy.size(1));
  const int64_t count = StemGradientParts(shape);
  if (count == 0) {
    const at::Tensor of_squares =
        at::empty({shape.outputs, shape.framed_channels, 4, 4}, dy.options(), kLast);
    return PlannedConvolutionWeightGradient(dy, squares, of_squares)
        .permute({0, 2, 3, 1})
        .to(at::kFloat)
        .contiguous()
        .unsqueeze(0);
  }
  const at::Tensor parts = at::empty({count, shape.outputs, 4, 4, shape.framed_channels},
                                     dy.options().dtype(at::kFloat));
  Launch(dy, [&](cudaStream_t stream) {
    LaunchStemGradient(dy.const_data_ptr(), squares.const_data_ptr(), TypeOf(dy),
                       parts.mutable_data_ptr<float>(), shape, stream);
  });
  return parts;
}

class FusedStemConvolution : public torch::autograd::Function<FusedStemConvolution> {
 public:
  // Computes the convolution. `trains` says whether a backward may follow.
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& weight,
                          bool trains) {
    const c10::DeviceGuard guard(x.device());
    const at::Tensor squares = FusedSquares(x);
    const at::Tensor rounded = Rounded(weight, x.scalar_type());
    // The gradient of x needs the weight, and the gradient of the weight needs the squares. x itself is kept only for
    // gradients that are differentiated again.
    context->save_for_backward({squares, rounded, x.requires_grad() ? x : at::Tensor()});
    context->saved_data["weight"] = weight;
    context->saved_data["d_weight"] = GradientToAddTo(weight);
    return Convolved(x, squares, rounded, trains);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& squares = saved[0];
    const at::Tensor& weight = saved[1];
    const c10::DeviceGuard guard(squares.device());
    variable_list results(3);
    if (IsDifferentiatedAgain()) {
      const auto twin = [](const variable_list& of) {
        return at::conv2d(of[0], of[1].to(of[0].scalar_type()), /*bias=*/{}, /*stride=*/2,
                          /*padding=*/3);
      };
      const at::Tensor image =
          saved[2].defined() ? saved[2] : ImageOfSquares(squares, weight.size(1));
      const at::Tensor exact = context->saved_data["weight"].toTensor();
      std::ranges::copy(GradientsOfTwin({image, exact}, gradients[0], twin), results.begin());
      return results;
    }
    const at::Tensor dy = Aligned(gradients[0].contiguous(kLast));
    if (context->needs_input_grad(0)) {
      const at::Tensor d_squares =
          PlannedConvolutionInputGradient(dy, squares, FusedWeightOfSquares(weight));
      results[0] = ImageOfSquares(d_squares, weight.size(1));
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor to = context->saved_data["d_weight"].toTensor();
      const at::Tensor sums = to.defined() ? to : at::empty_like(weight, at::kFloat);
      const at::Tensor parts = PartsOfGradient(dy, squares);
      const bool adds = to.defined() && !TakeOver(to);
      Launch(sums, [&](cudaStream_t stream) {
        LaunchSumStemGradients(parts.const_data_ptr<float>(), parts.size(0),
                               {sums.mutable_data_ptr<float>(), adds}, ShapeOf(sums), stream);
      });
      if (!to.defined()) results[1] = sums;
    }
    return results;
  }
};

// Returns whether the kernels can compute this convolution: they support the sizes and types of x and weight, x is not
// empty, and 32-bit indices suffice for four times the elements of an image.
bool IsFused(const at::Tensor& x, const at::Tensor& weight) {
  return IsOnGpu(x) && Is16Bit(x) && weight.scalar_type() == at::kFloat &&
         weight.device() == x.device() && x.dim() == 4 && x.numel() > 0 && weight.dim() == 4 &&
         weight.size(1) == x.size(1) && weight.size(2) == 7 && weight.size(3) == 7 &&
         x.size(2) % 2 == 0 && x.size(3) % 2 == 0 &&
         4 * x.numel() / x.size(0) <= std::numeric_limits<int>::max();
}

}  // namespace

at::Tensor StemConvolution(const at::Tensor& x, const at::Tensor& weight) {
  if (!IsFused(x, weight)) {
    return Convolution(IsOnGpu(x) ? x.contiguous(kLast) : x, weight, /*stride=*/2, /*padding=*/3);
  }
  return FusedStemConvolution::apply(x, weight, /*trains=*/at::GradMode::is_enabled());
}

at::Tensor StemConvolutionOfSquares(const at::Tensor& x, const at::Tensor& weight) {
  return at::conv2d(SquaresOf(x), WeightOfSquares(weight));
}

at::Tensor StemConvolutionTwin(const at::Tensor& x, const at::Tensor& weight) {
  return at::conv2d(x, weight, /*bias=*/{}, /*stride=*/2, /*padding=*/3);
}

}  // namespace lockstep::ops
