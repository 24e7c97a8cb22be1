// ActivationOf(): which activation function of trainer/ops a node computes.
#pragma once

#include "trainer/models/imported/program.h"
#include "trainer/ops/product/activation.h"

namespace lockstep::exported {

// The activation that is the node, in place or not; kNone: it is none.
ops::Activation ActivationOf(const Node& node);

}  // namespace lockstep::exported
