#include "models/losses/losses.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/testing/message_of.h"
#include "models/losses/make_loss.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

at::Tensor Logits(at::IntArrayRef sizes) {
  at::manual_seed(1);
  return (3 * at::randn(sizes)).requires_grad_();
}

config::Loss LossOf(config::Loss::Type type) {
  config::Loss loss;
  loss.set_type(type);
  return loss;
}

// Checks that `loss` and `expected` have the same value and the same gradient with respect to `logits`.
void ExpectSame(const at::Tensor& logits, const at::Tensor& loss, const at::Tensor& expected) {
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6 * (1 + expected.item<double>()));
  loss.backward();
  const at::Tensor gradient = logits.grad().clone();
  logits.mutable_grad().zero_();
  expected.backward();
  EXPECT_TRUE(at::allclose(gradient, logits.grad(), 1e-5, 1e-6));
}

TEST(LossFunction, OfTheTaskIsNotReplaced) {
  for (const Task task : {Task::kClassification, Task::kMultiLabel, Task::kRegression,
                          Task::kLanguage, Task::kSegmentation}) {
    EXPECT_EQ(MakeLossFunction({}, task, 3), nullptr);
  }
}

TEST(LossFunction, WeightsAreOneForEachClass) {
  config::Loss loss;
  loss.add_class_weight(1);
  loss.add_class_weight(2);
  EXPECT_THAT(
      MessageOf(ExitStatus::kUsage, [&] { MakeLossFunction(loss, Task::kClassification, 3); }),
      HasSubstr("loss.class_weight: 2 weights where the data have 3: give one for each"));
}

TEST(LossFunction, RefusesOutputsOfAnotherShape) {
  const auto loss = MakeLossFunction(LossOf(config::Loss::MAE), Task::kRegression, 2);
  EXPECT_THAT(
      MessageOf(ExitStatus::kUsage, [&] { loss->Sum(at::zeros({4, 1}), at::zeros({4, 2}), 0); }),
      HasSubstr("the model puts out [4, 1] where the targets are [4, 2]"));
  const auto focal = MakeLossFunction(LossOf(config::Loss::FOCAL), Task::kSegmentation, 2);
  EXPECT_THAT(MessageOf(ExitStatus::kUsage,
                        [&] { focal->Sum(at::zeros({4, 2, 3}), at::zeros({4, 3, 3}), 0); }),
              HasSubstr("where the masks are [4, 3, 3]"));
}

// Checks that 255, which masks use for pixels without a class, is a class like any other in classification.
TEST(LossFunction, AnyNumberIsAClass) {
  const at::Tensor logits = Logits({2, 300});
  const at::Tensor labels = at::tensor({255, 7});
  std::vector<double> weights(300, 2);
  weights[255] = 5;
  EXPECT_EQ(MakeClassLoss(Task::kClassification, weights, 0)->WeightSum(labels).item<float>(), 7);
  const at::Tensor none = MakeClassLoss(Task::kClassification, {}, 1)->Sum(logits, labels, 0);
  const at::Tensor p = logits.softmax(1).gather(1, labels.unsqueeze(1));
  EXPECT_NEAR(none.item<double>(), ((1 - p) * -p.log()).sum().item<double>(), 1e-5);
}

// Checks that the sum of the losses over two parts of a batch (7 and 3 samples), divided by the sum of the weights, is
// PyTorch's mean over the batch.
TEST(LossFunction, WeightedMeansArePyTorchs) {
  const at::Tensor logits = Logits({10, 5});  // two columns are padding
  const at::Tensor labels = at::arange(10).remainder(3);
  const at::Tensor weights = at::tensor({0.5F, 3.F, 1.25F});
  const auto loss = MakeClassLoss(Task::kClassification, {0.5, 3, 1.25}, 0);
  at::Tensor sum = at::zeros({});
  at::Tensor weight = at::zeros({});
  for (const auto& [first, count] : {std::pair{0, 7}, std::pair{7, 3}}) {
    const at::Tensor part = labels.narrow(0, first, count);
    sum = sum + loss->Sum(logits.narrow(0, first, count), part, 0.1);
    weight = weight + loss->WeightSum(part);
  }
  ExpectSame(logits, sum / weight,
             at::cross_entropy_loss(logits.narrow(1, 0, 3), labels, weights, at::Reduction::Mean,
                                    -100, 0.1));
}

TEST(LossFunction, PixelsWithoutAClassWeighNothing) {
  const at::Tensor logits = Logits({2, 3, 4, 5});
  at::Tensor masks = at::arange(40).remainder(3).view({2, 4, 5}).to(at::kByte);
  masks[0][0].fill_(kIgnoredPixel);
  const at::Tensor weights = at::tensor({0.5F, 3.F, 1.25F});
  const auto loss = MakeClassLoss(Task::kSegmentation, {0.5, 3, 1.25}, 0);
  ExpectSame(logits, loss->Sum(logits, masks, 0) / loss->WeightSum(masks),
             at::cross_entropy_loss(logits, masks.to(at::kLong), weights, at::Reduction::Mean,
                                    kIgnoredPixel));
}

// Checks the focal loss by its formula, weight (1 - p)^gamma (-log p), where p is the softmax probability of the class.
TEST(LossFunction, FocalLossOfClassesIsItsFormula) {
  const at::Tensor labels = at::arange(12).remainder(3);
  const at::Tensor weight = at::tensor({0.5F, 3.F, 1.25F}).index_select(0, labels);
  for (const double gamma : {0.5, 2.0}) {
    const at::Tensor logits = Logits({12, 3});
    const auto losses = [&] {
      const at::Tensor p = logits.softmax(1).gather(1, labels.unsqueeze(1)).squeeze(1);
      return (1 - p).pow(gamma) * -p.log();
    };
    const auto plain = MakeClassLoss(Task::kClassification, {}, gamma);
    EXPECT_FALSE(plain->WeightSum(labels).defined());
    ExpectSame(logits, plain->Sum(logits, labels, 0), losses().sum());
    logits.mutable_grad().zero_();
    const auto weighed = MakeClassLoss(Task::kClassification, {0.5, 3, 1.25}, gamma);
    ExpectSame(logits, weighed->Sum(logits, labels, 0) / weighed->WeightSum(labels),
               (weight * losses()).sum() / weight.sum());
  }
}

TEST(LossFunction, FocalLossOfWhatIsSureHasAFiniteGradient) {
  const at::Tensor logits = at::tensor({200.F, -200.F}).view({1, 2}).requires_grad_();
  MakeClassLoss(Task::kClassification, {}, 0.5)
      ->Sum(logits, at::zeros({1}, at::kLong), 0)
      .backward();
  EXPECT_TRUE(logits.grad().isfinite().all().item<bool>());
}

TEST(LossFunction, OfLabelsIsPyTorchs) {
  const at::Tensor logits = Logits({9, 2});
  const at::Tensor truths = at::arange(18).remainder(3).gt(1).to(at::kFloat).view({9, 2});
  const at::Tensor weights = at::tensor({4.F, 0.25F});
  ExpectSame(logits, MakeLabelLoss({4, 0.25}, 0)->Sum(logits, truths, 0),
             at::binary_cross_entropy_with_logits(logits, truths, {}, weights, at::Reduction::Sum));
  logits.mutable_grad().zero_();
  // The focal loss is torchvision.ops.sigmoid_focal_loss with alpha=-1: (1 - of_truth)^gamma times the cross-entropy,
  // where `of_truth` is the predicted probability of the label's true value.
  const at::Tensor p = logits.sigmoid();
  const at::Tensor of_truth = p * truths + (1 - p) * (1 - truths);
  ExpectSame(logits, MakeLabelLoss({}, 2)->Sum(logits, truths, 0),
             ((1 - of_truth).square() * -of_truth.log()).sum());
}

TEST(LossFunction, OfNumbersIsPyTorchs) {
  const at::Tensor numbers = Logits({9, 2});
  const at::Tensor target = at::arange(18).to(at::kFloat).view({9, 2}) / 4;
  const at::Tensor apart = target - numbers;
  config::Loss loss = LossOf(config::Loss::QUANTILE);
  loss.set_quantile(0.9);
  ExpectSame(numbers, MakeNumberLoss(loss)->Sum(numbers, target, 0),
             at::where(apart.gt(0), 0.9 * apart, -0.1 * apart).sum());
  numbers.mutable_grad().zero_();
  loss = LossOf(config::Loss::HUBER);
  loss.set_delta(0.7);
  ExpectSame(numbers, MakeNumberLoss(loss)->Sum(numbers, target, 0),
             at::huber_loss(numbers, target, at::Reduction::Sum, 0.7));
  numbers.mutable_grad().zero_();
  ExpectSame(numbers, MakeNumberLoss(LossOf(config::Loss::MAE))->Sum(numbers, target, 0),
             at::l1_loss(numbers, target, at::Reduction::Sum));
}

}  // namespace
}  // namespace lockstep
