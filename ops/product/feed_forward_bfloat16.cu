#include "ops/product/feed_forward_product.cuh"

namespace lockstep::ops {

template struct HiddenProducts<FloatType::kBFloat16>;

}  // namespace lockstep::ops
