// MakeLossFunction(): makes the loss function that the config field `loss` selects.
//
// what can fail -> what the caller sees -> the test that shows it
//   the number of weights is not the number of classes or labels -> Error (kUsage) from MakeLossFunction()
//     -> losses_test.cc, LossFunction.WeightsAreOneForEachClass
#pragma once

#include <cstdint>
#include <memory>

#include "config/schema/loss.pb.h"
#include "data/dataset/dataset.h"
#include "models/losses/loss_function.h"

namespace lockstep {

// Returns the loss that `config` selects; null if it selects none, in which case the task's default loss applies.
// `classes` is the number of classes, labels or regression targets. Throws Error (kUsage).
std::shared_ptr<LossFunction> MakeLossFunction(const config::Loss& config, Task task,
                                               int64_t classes);

}  // namespace lockstep
