#include "ops/update/step_decision.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class StepDecision : public testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == at::kCUDA && !at::hasCUDA()) GTEST_SKIP() << "needs a GPU; there is none";
    values_ = at::zeros({kStepValues}, at::TensorOptions(GetParam()).dtype(at::kFloat));
    figures_ = at::zeros({kStepFigures}, at::TensorOptions(GetParam()).dtype(at::kDouble));
    values_[kLossScale].fill_(1);
  }

  at::Tensor Scalar(float value) const { return at::full({}, value, values_.options()); }
  at::Tensor Sums(float loss) const {
    at::Tensor sums = at::zeros({kStepSums}, values_.options());
    sums[kLossSum].fill_(loss);
    return sums;
  }
  void Decide(float loss, float norm, const StepRules& rules) {
    DecideStep(values_, figures_, Sums(loss), Scalar(norm), rules);
  }
  float value(StepValue place) const { return values_[place].item<float>(); }
  double figure(StepFigure place) const { return figures_[place].item<double>(); }

  at::Tensor values_, figures_;
};

TEST_P(StepDecision, LetsAFiniteStepPass) {
  Decide(2, 3, {});
  EXPECT_EQ(value(kSkip), 0);
  EXPECT_EQ(value(kGradScale), 1);
  EXPECT_EQ(value(kUpdates), 1);
  EXPECT_EQ(figure(kLoss), 2);
  EXPECT_EQ(figure(kGradNorm), 3);
  EXPECT_EQ(figure(kSteps), 1);
  EXPECT_EQ(figure(kBadStep), 0);
}

TEST_P(StepDecision, ClipsWhatIsLongerThanTheNormAllows) {
  Decide(1, 4, {.max_norm = 8});
  EXPECT_EQ(value(kGradScale), 1);
  Decide(1, 4, {.max_norm = 0.5});
  EXPECT_FLOAT_EQ(value(kGradScale), 8 + 2e-6F);
  // The gradients are unscaled before clipping: the true norm is 4 / 16 = 0.25, twice max_norm, so the divisor is 2 *
  // 16 = 32.
  values_[kLossScale].fill_(16);
  Decide(1, 4, {.max_norm = 0.125});
  EXPECT_EQ(figure(kGradNorm), 0.25);
  EXPECT_NEAR(value(kGradScale), 32, 1e-3);
}

TEST_P(StepDecision, DividesByTheMeanWeightOfTheTargets) {
  const StepRules rules{.max_norm = 0.5, .weighs_targets = true};
  at::Tensor sums = Sums(6);
  sums[kWeightSum].fill_(3);
  values_[kLossScale].fill_(16);
  DecideStep(values_, figures_, sums, Scalar(12), rules);
  EXPECT_EQ(figure(kLoss), 2);
  EXPECT_EQ(figure(kGradNorm), 0.25);
  EXPECT_EQ(value(kGradScale), 48);
  DecideStep(values_, figures_, sums, Scalar(48), rules);
  EXPECT_NEAR(value(kGradScale), 96, 1e-3) << "the norm is 1 where 0.5 is allowed";
  Decide(0, 0, rules);
  EXPECT_EQ(figure(kLoss), 0) << "no target weighs anything";
  EXPECT_EQ(value(kGradScale), 16);
  EXPECT_EQ(figure(kBadStep), 0);
}

TEST_P(StepDecision, StopsForGoodAtTheFirstAnomaly) {
  Decide(1, 1, {});
  Decide(kNan, 7, {});
  Decide(1, 1, {});
  EXPECT_EQ(value(kSkip), 1) << "the weights are those before the anomaly";
  EXPECT_EQ(value(kUpdates), 1);
  Decide(kInf, 1, {});
  EXPECT_EQ(figure(kBadStep), 2);
  EXPECT_TRUE(std::isnan(figure(kBadLoss)));
  EXPECT_EQ(figure(kBadGradNorm), 7);
  EXPECT_EQ(figure(kSkipped), 3);
}

TEST_P(StepDecision, SkipsWhereAsked) {
  const StepRules rules{.stops = false};
  Decide(1, kInf, rules);
  EXPECT_EQ(value(kSkip), 1);
  Decide(1, 1, rules);
  EXPECT_EQ(value(kSkip), 0);
  EXPECT_EQ(value(kUpdates), 1);
  EXPECT_EQ(figure(kSkipped), 1);
  EXPECT_EQ(figure(kBadStep), 1);
}

TEST_P(StepDecision, TellsWhatRanksAskFor) {
  at::Tensor sums = Sums(1);
  sums[kSaveSum].fill_(2);
  sums[kStopSum].fill_(3);
  sums[kInterruptSum].fill_(4);
  DecideStep(values_, figures_, sums, Scalar(1), {});
  EXPECT_EQ(figure(kSavesAsked), 2);
  EXPECT_EQ(figure(kStopsAsked), 3);
  EXPECT_EQ(figure(kInterruptsAsked), 4);
  Decide(1, 1, {});
  EXPECT_EQ(figure(kStopsAsked), 0);
}

TEST_P(StepDecision, TakesANormThatComesLater) {
  DecideStep(values_, figures_, Sums(1), {}, {});
  EXPECT_EQ(value(kSkip), 0);
  JudgeNorm(figures_, Scalar(5));
  EXPECT_EQ(figure(kGradNorm), 5);
  EXPECT_EQ(figure(kBadStep), 0);
  DecideStep(values_, figures_, Sums(1), {}, {});
  JudgeNorm(figures_, Scalar(kNan));
  EXPECT_EQ(figure(kBadStep), 2);
}

// Compares the loss scale with that of ATen's _amp_update_scale_, which torch.amp.GradScaler uses.
TEST_P(StepDecision, KeepsTheLossScaleAsGradScalerDoes) {
  const StepRules rules{.scales_loss = true, .growth_interval = 3};
  at::Tensor scale = Scalar(65536);
  at::Tensor tracker = at::zeros({}, scale.options().dtype(at::kInt));
  values_[kLossScale].fill_(65536);
  int64_t skipped = 0;
  for (const float norm :
       {1.F, 1.F, 1.F, kInf, 1.F, kNan, kInf, 1.F, 1.F, 1.F, 1.F, 1.F, 1.F, 1.F}) {
    const at::Tensor found = Scalar(std::isfinite(norm) ? 0.F : 1.F);
    Decide(1, norm, rules);
    EXPECT_EQ(value(kSkip), found.item<float>());
    skipped += found.item<float>() > 0;
    at::_amp_update_scale_(scale, tracker, found, 2.0, 0.5, 3);
    EXPECT_EQ(value(kLossScale), scale.item<float>());
    EXPECT_EQ(figure(kSkipped), static_cast<double>(skipped));
  }
  EXPECT_EQ(figure(kBadStep), 0) << "an overflow is no anomaly";
  values_[kLossScale].fill_(3e38F);
  for (int i = 0; i < 3; ++i) Decide(1, 1, rules);
  EXPECT_EQ(value(kLossScale), 3e38F) << "it does not grow beyond float32";
}

INSTANTIATE_TEST_SUITE_P(, StepDecision, testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& param) {
                           return param.param == at::kCUDA ? "GPU" : "CPU";
                         });

}  // namespace
}  // namespace lockstep::ops
