// MakeLossFunction(): makes the loss that a config asks for.
//
// what can fail -> what the caller sees -> the test that shows it
//   as many weights are given as there are no classes or labels -> Error (kUsage) from MakeLossFunction()
//     -> losses_test.cc, LossFunction.WeightsAreOneForEachClass
#pragma once

#include <cstdint>
#include <memory>

#include "config/schema/loss.pb.h"
#include "data/dataset/dataset.h"
#include "models/losses/loss_function.h"

namespace lockstep {

// Returns the loss that `config` asks for; null if it is the task's own. `classes` is the number of classes, labels or
// numbers. Throws Error (kUsage).
std::shared_ptr<LossFunction> MakeLossFunction(const config::Loss& config, Task task,
                                               int64_t classes);

}  // namespace lockstep
