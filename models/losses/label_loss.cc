#include <ATen/ATen.h>

#include "models/losses/losses.h"

namespace lockstep {
namespace {

class LabelLoss final : public LossFunction {
 public:
  LabelLoss(const std::vector<double>& positive_weights, double gamma) : gamma_(gamma) {
    if (!positive_weights.empty()) positive_weights_ = at::tensor(positive_weights, at::kFloat);
  }

  at::Tensor Sum(const at::Tensor& output, const at::Tensor& target,
                 double /*label_smoothing*/) const override {
    const at::Tensor logits = OutputFor(output, target);
    if (gamma_ == 0) {
      return at::binary_cross_entropy_with_logits(logits, target, /*weight=*/{}, positive_weights_,
                                                  at::Reduction::Sum);
    }
    const at::Tensor losses = at::binary_cross_entropy_with_logits(
        logits, target, /*weight=*/{}, positive_weights_, at::Reduction::None);
    const at::Tensor logs = at::binary_cross_entropy_with_logits(
        logits, target, /*weight=*/{}, /*pos_weight=*/{}, at::Reduction::None);
    return (FocalShare(logs, gamma_) * losses).sum();
  }

  void MoveTo(at::Device device) override {
    if (positive_weights_.defined()) positive_weights_ = positive_weights_.to(device);
  }

 private:
  double gamma_;
  at::Tensor positive_weights_;
};

}  // namespace

std::shared_ptr<LossFunction> MakeLabelLoss(const std::vector<double>& positive_weights,
                                            double gamma) {
  return std::make_shared<LabelLoss>(positive_weights, gamma);
}

}  // namespace lockstep
