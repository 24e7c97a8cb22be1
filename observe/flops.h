// Counts the floating-point operations that a model computes while it runs.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls `act`, and returns how many floating-point operations the matrix products, convolutions and attentions of this
// thread make in it. A multiplication with its addition counts as two operations. For causal attention half of the
// operations are counted.
int64_t CountFlops(const std::function<void()>& act);

}  // namespace lockstep
