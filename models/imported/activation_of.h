// ActivationOf(): finds out which activation function of ops a node of an exported graph computes.
#pragma once

#include "models/imported/program.h"
#include "ops/product/activation.h"

namespace lockstep::exported {

// Returns the activation that the node computes, in place or not; kNone: the node is not an activation.
ops::Activation ActivationOf(const Node& node);

}  // namespace lockstep::exported
