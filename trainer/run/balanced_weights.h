// Computes the weights of loss { balanced: true } from the training samples, and checks the weights that the user gave.
//
// Promise: all ranks compute the same weights, because each rank reads the targets of all training samples. Input
// images are not read.
//
// what can fail -> what the caller sees -> the test that shows it
//   no training sample has a certain class or label -> Error (kUsage) -> tests/losses_test.py, test_wrong_losses
//   all training samples are of classes whose weight is 0 -> Error (kUsage) -> likewise
#pragma once

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"

namespace lockstep {

// If loss.balanced is set in `config`, sets loss.class_weight (or, for several labels per sample, loss.positive_weight)
// and clears loss.balanced.
void SetBalancedWeights(config::Config& config, const Dataset& train);

// Checks that loss.class_weight leaves a training sample (or a pixel of one) with a weight above 0. Reads targets only
// if a class has the weight 0. Throws Error (kUsage).
void RequireWeight(const config::Config& config, const Dataset& train);

}  // namespace lockstep
