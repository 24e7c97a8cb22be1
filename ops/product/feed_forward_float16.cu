#include "ops/product/feed_forward_product.cuh"

namespace lockstep::ops {

template struct HiddenProducts<FloatType::kFloat16>;

}  // namespace lockstep::ops
