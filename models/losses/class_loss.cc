#include <ATen/ATen.h>

#include "models/losses/losses.h"

namespace lockstep {
namespace {

class ClassLoss final : public LossFunction {
 public:
  ClassLoss(Task task, const std::vector<double>& weights, double gamma)
      : task_(task),
        gamma_(gamma),
        ignored_(task == Task::kSegmentation ? kIgnoredPixel : kNoClass) {
    if (!weights.empty()) weights_ = at::tensor(weights, at::kFloat);
  }

  at::Tensor Sum(const at::Tensor& output, const at::Tensor& target,
                 double label_smoothing) const override {
    at::Tensor logits = LogitRows(output, target, task_).to(at::kFloat);
    // The logits may have more columns than there are classes, as padding. These columns are cut off if there are
    // weights, because LibTorch needs a weight for each column.
    if (weights_.defined()) logits = logits.narrow(1, 0, weights_.size(0));
    const at::Tensor labels = target.flatten().to(at::kLong);
    if (gamma_ == 0) {
      return at::cross_entropy_loss(logits, labels, weights_, at::Reduction::Sum, ignored_,
                                    label_smoothing);
    }
    const at::Tensor logs = at::nll_loss(at::log_softmax(logits, 1), labels, /*weight=*/{},
                                         at::Reduction::None, ignored_);
    at::Tensor losses = FocalShare(logs, gamma_) * logs;
    if (weights_.defined()) losses = losses * WeightsOf(labels);
    return losses.sum();
  }

  at::Tensor WeightSum(const at::Tensor& target) const override {
    if (!weights_.defined()) return {};
    return WeightsOf(target.flatten().to(at::kLong)).sum();
  }

  bool WeighsTargets() const override { return weights_.defined(); }

  void MoveTo(at::Device device) override {
    if (weights_.defined()) weights_ = weights_.to(device);
  }

 private:
  static constexpr int64_t kNoClass = -100;

  at::Tensor WeightsOf(const at::Tensor& labels) const {
    const at::Tensor known = labels.clamp(0, weights_.size(0) - 1);
    return weights_.index_select(0, known).masked_fill(labels.eq(ignored_), 0);
  }

  Task task_;
  double gamma_;
  int64_t ignored_;  // the target of samples or pixels without a class
  at::Tensor weights_;
};

}  // namespace

std::shared_ptr<LossFunction> MakeClassLoss(Task task, const std::vector<double>& class_weights,
                                            double gamma) {
  return std::make_shared<ClassLoss>(task, class_weights, gamma);
}

}  // namespace lockstep
