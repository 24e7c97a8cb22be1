// PeakLearningRate(): the learning rate of which schedules take a share in each step.
#pragma once

#include "config/schema/config.pb.h"

namespace lockstep {

// Returns the peak learning rate: optimizer.lr, scaled for the global batch as optimizer.lr_scaling says.
double PeakLearningRate(const config::Config& config);

}  // namespace lockstep
