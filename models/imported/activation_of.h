// ActivationOf(): which activation function of ops a node computes.
#pragma once

#include "models/imported/program.h"
#include "ops/product/activation.h"

namespace lockstep::exported {

// The activation that is the node, in place or not; kNone: it is none.
ops::Activation ActivationOf(const Node& node);

}  // namespace lockstep::exported
