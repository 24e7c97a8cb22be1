#include "base/ceil_divide.h"
#include "ops/common/partial_sums.cuh"
#include "ops/product/feed_forward_product.h"

namespace lockstep::ops {
namespace {

// Returns the number of columns of the partial sums: the number of hidden units, rounded up to whole tiles.
int64_t PartialStride(const HiddenShape& shape) {
  return RoundUp(shape.hidden, kTileHiddenBackward);
}

int64_t PartialRows(const HiddenShape& shape) { return CeilDivide(shape.rows, kTileRows); }

}  // namespace

int64_t HiddenTiles(int64_t rows, int64_t hidden) {
  return CeilDivide(rows, kTileRows) * CeilDivide(hidden, kTileHidden);
}

int64_t HiddenPartials(const HiddenShape& shape) {
  return PartialRows(shape) * PartialStride(shape);
}

const char* LaunchHidden(const HiddenForward& tensors, FloatType type, const HiddenShape& shape,
                         cudaStream_t stream) {
  return type == FloatType::kBFloat16
             ? HiddenProducts<FloatType::kBFloat16>::Forward(tensors, shape, stream)
             : HiddenProducts<FloatType::kFloat16>::Forward(tensors, shape, stream);
}

const char* LaunchHiddenBackward(const HiddenBackward& tensors, FloatType type,
                                 const HiddenShape& shape, cudaStream_t stream) {
  const char* const error =
      type == FloatType::kBFloat16
          ? HiddenProducts<FloatType::kBFloat16>::Backward(tensors, shape, stream)
          : HiddenProducts<FloatType::kFloat16>::Backward(tensors, shape, stream);
  if (error == nullptr) {
    LaunchSumPartials(tensors.partials, {tensors.d_bias}, PartialRows(shape), shape.hidden,
                      PartialStride(shape), stream);
  }
  return error;
}

}  // namespace lockstep::ops
