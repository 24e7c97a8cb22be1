// Squeeze-and-excitation (fuse.h): the product of an image and a gate that is computed from the image's mean, as in
// EfficientNet, MobileNetV3, RegNetY and ECA-Net:
//
//   mean of the pixels     Squeeze()
//   ...                    the operations that compute the gate from the mean stay as they are
//   (expand_as ->) mul     Excite()
//
// Whether there are kernels for the image is known only when the graph runs; if there are none, LibTorch's operations
// are called.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the operation `node`, a mean or adaptive_avg_pool2d, and the product with the gate.
void FuseSqueezeExcite(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
