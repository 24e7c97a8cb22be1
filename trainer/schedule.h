// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "trainer/config.pb.h"

namespace lockstep {

// The rate of optimizer step `step`, counted from 0, of a run of `total_steps`, as a share of
// optimizer.lr. Warm-up: (step + 1) / warmup_steps. After it, with t counted from its end to
// T = total_steps - warmup_steps: CONSTANT 1; COSINE f + (1 - f) (1 + cos(pi t / T)) / 2, f =
// final_fraction (torch.optim.lr_scheduler.CosineAnnealingLR; Loshchilov and Hutter, ICLR 2017).
double LearningRateShare(const config::Schedule& schedule, int64_t step, int64_t total_steps);

}  // namespace lockstep
