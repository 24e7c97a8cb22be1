// Counts the floating-point operations that a model computes while it runs.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls `act`, and returns how many floating-point operations the matrix products, convolutions and attentions of this
// thread make in it. A multiplication with its addition counts as two operations. For causal attention half of the
// operations are counted.
int64_t CountFlops(const std::function<void()>& act);

// Returns the operations of one call, without those of the calls within it; 0 if they are not known. `call` must have
// its inputs.
int64_t FlopsOf(const at::RecordFunction& call);

}  // namespace lockstep
