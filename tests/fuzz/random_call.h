// RandomCall(): random arguments of an operation, the same for the same seed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace lockstep {

// Returns arguments that have the types of the operation's schema. In most calls their sizes and values go together, as
// the names of the arguments suggest, and in the others some do not. Floating-point tensors may require a gradient if
// `gradients`.
std::vector<c10::IValue> RandomCall(const c10::OperatorHandle& operation, uint64_t seed,
                                    bool gradients);

}  // namespace lockstep
