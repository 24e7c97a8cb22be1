// Squeeze-and-excitation (fuse.h): the product of an image and a gate, which arises from the image's mean, as
// EfficientNet, MobileNetV3 and RegNetY have it.
//
//   mean of the pixels     Squeeze()
//   ...                    the same operations, of the mean, which give the gate
//   mul                    Excite()
//
// Whether x is an image for which there are kernels shows when the graph runs; otherwise LibTorch's operations are
// called.
#pragma once

#include <cstdint>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

// Fuses the mean or the adaptive_avg_pool2d that is this node.
void FuseSqueezeExcite(Rewriter& rewriter, int64_t node);

}  // namespace lockstep::exported
