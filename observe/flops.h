// Counts the floating-point operations that a model computes while it runs.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls `act` and returns the operations of the matrix products, convolutions and attention that this
// thread makes in it: two for each multiplication and addition. Half of a causal attention's are counted.
int64_t CountFlops(const std::function<void()>& act);

}  // namespace lockstep
