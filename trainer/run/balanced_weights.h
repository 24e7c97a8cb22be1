// Computes the weights of loss { balanced: true } from the training samples.
//
// Promise: all ranks compute the same weights, because each reads the targets of all training samples. No pixel of an
// image is read.
//
// what can fail -> what the caller sees -> the test that shows it
//   a class or a label of which there is no training sample -> Error (kUsage) -> tests/losses_test.py,
//     test_wrong_losses
#pragma once

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"

namespace lockstep {

// Sets loss.class_weight, or positive_weight for labels, in `config`, and balanced to false, if balanced is set.
void SetBalancedWeights(config::Config& config, const Dataset& train);

}  // namespace lockstep
