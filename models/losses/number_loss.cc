#include <ATen/ATen.h>

#include "base/error.h"
#include "models/losses/losses.h"

namespace lockstep {
namespace {

class NumberLoss final : public LossFunction {
 public:
  explicit NumberLoss(const config::Loss& config) : config_(config) {}

  at::Tensor Sum(const at::Tensor& output, const at::Tensor& target,
                 double /*label_smoothing*/) const override {
    const at::Tensor numbers = OutputFor(output, target);
    switch (config_.type()) {
      case config::Loss::MAE:
        return at::l1_loss(numbers, target, at::Reduction::Sum);
      case config::Loss::HUBER:
        return at::huber_loss(numbers, target, at::Reduction::Sum, config_.delta());
      case config::Loss::QUANTILE: {
        const at::Tensor below = target - numbers;
        return at::maximum(config_.quantile() * below, (config_.quantile() - 1) * below).sum();
      }
      case config::Loss::OF_TASK:
      case config::Loss::FOCAL:
        break;
    }
    throw BugError("loss.type {} of numbers", static_cast<int>(config_.type()));
  }

 private:
  config::Loss config_;
};

}  // namespace

std::shared_ptr<LossFunction> MakeNumberLoss(const config::Loss& config) {
  return std::make_shared<NumberLoss>(config);
}

}  // namespace lockstep
