// Counts the floating-point operations (FLOPs) that a model executes.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <functional>

namespace lockstep {

// Calls `act`, and returns the number of floating-point operations of the matrix products, convolutions, attentions and
// cuDNN's recurrent layers that `act` runs on this thread. A multiply-add counts as two operations. Causal attention
// counts as half of full attention.
int64_t CountFlops(const std::function<void()>& act);

// Returns the number of floating-point operations of one call, without the operations of calls nested in it; 0 if the
// number is not known. `call` must have its inputs (RecordFunctionCallback::needsInputs(true)).
int64_t FlopsOf(const at::RecordFunction& call);

}  // namespace lockstep
