#include "config/peak_learning_rate.h"

#include <cmath>

#include "base/error.h"

namespace lockstep {

double PeakLearningRate(const config::Config& config) {
  const config::Optimizer& optimizer = config.optimizer();
  const double ratio =
      static_cast<double>(config.global_batch()) / static_cast<double>(optimizer.scaling_batch());
  switch (optimizer.lr_scaling()) {
    case config::Optimizer::OFF:
      return optimizer.lr();
    case config::Optimizer::LINEAR:
      return optimizer.lr() * ratio;
    case config::Optimizer::SQUARE_ROOT:
      return optimizer.lr() * std::sqrt(ratio);
  }
  throw BugError("optimizer.lr_scaling {}", static_cast<int>(optimizer.lr_scaling()));
}

}  // namespace lockstep
