// Computes the learning rate of each step.
#pragma once

#include <cstdint>
#include <limits>

#include "ckpt/state_tree.h"
#include "config/schema/config.pb.h"

namespace lockstep {

// Returns the learning rate of optimizer step `step`, counted from 0, in a run of `total_steps` steps, as a fraction of
// the peak learning rate. During warm-up the fraction is (step + 1) / warmup_steps, except for ONE_CYCLE. After warm-up
// the fraction is as follows, where t = step - warmup_steps, T = total_steps - warmup_steps, and f = final_fraction:
//  CONSTANT, PLATEAU  1
//  COSINE     f + (1 - f) (1 + cos(pi t / T)) / 2 (torch.optim.lr_scheduler.CosineAnnealingLR;
//             Loshchilov and Hutter, ICLR 2017)
//  LINEAR     1 + (f - 1) t / T (LinearLR)
//  STEP       factor ^ floor(t / every_steps) (StepLR)
//  ONE_CYCLE  as OneCycleLR with pct_start = warmup_steps / total_steps and div_factor 25: a cosine from 1/25 to 1 in
//             the warm-up, and a cosine from 1 to f after it
//  RANGE_TEST b ^ (1 - t / (T - 1)), where b = first_fraction (Smith, WACV 2017; each step multiplies the rate by a
//             constant, where Smith's schedule adds a constant)
double LearningRateShare(const config::Schedule& schedule, int64_t step, int64_t total_steps);

// Computes the factor of the learning rate for PLATEAU from the validation losses so far
// (torch.optim.lr_scheduler.ReduceLROnPlateau with threshold 1e-4, relative, no cooldown, and eps=0: also a rate below
// 1e-8 becomes less).
class Plateau {
 public:
  explicit Plateau(const config::Schedule& schedule) : schedule_(schedule) {}

  void OnValidation(double loss);
  double share() const { return share_; }

  // Forgets the validation losses so far, because they were of other samples or of another loss. The rate stays.
  void BeginAnew();

  void AddTo(StateTree& state);

 private:
  config::Schedule schedule_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t without_improvement_ = 0;
  double share_ = 1;
};

}  // namespace lockstep
