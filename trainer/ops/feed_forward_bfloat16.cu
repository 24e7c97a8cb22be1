#include "trainer/ops/feed_forward_product.cuh"

namespace lockstep::ops {

template struct HiddenProducts<FloatType::kBFloat16>;

}  // namespace lockstep::ops
