// Compares the kernels with ATen's fused kernels (SGD, Adam, AdamW), or with the papers' formulas (LAMB, LARS). Also
// tests the rounded copies.

#include "ops/update/fused_update.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::ops {
namespace {

double Norm(const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }

// Returns above / below, or 1 if one of them is 0.
double RatioOrOne(double above, double below) { return above > 0 && below > 0 ? above / below : 1; }

class FusedUpdateTest : public testing::Test {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
    at::manual_seed(1);
    const at::Tensor memory = at::randn({70'001}, at::kCUDA);
    // The parameters have one element, less than a chunk, one chunk or several chunks; one begins at an address that is
    // not a multiple of 16 bytes, and one is channels last.
    for (const int64_t size : {1, 777, 4096, 30'001}) w_.push_back(at::randn({size}, at::kCUDA));
    w_.push_back(memory.narrow(0, 1, 70'000));
    w_.push_back(at::randn({40, 24, 3, 3}, at::kCUDA).contiguous(at::MemoryFormat::ChannelsLast));
    // This parameter has 301 chunks, more than the 256 threads of the block that adds up the sums of the chunks.
    w_.push_back(at::randn({300 * kUpdateChunk + 3}, at::kCUDA));
    const size_t alone = w_.size();
    // The gradients of these parameters share one storage, most of them at addresses that are not multiples of 16
    // bytes.
    const at::Tensor shared =
        at::randn({5 * static_cast<int64_t>(kMostGradientMemories)}, at::kCUDA);
    for (size_t i = 0; i < kMostGradientMemories; ++i) w_.push_back(at::randn({5}, at::kCUDA));
    for (const at::Tensor& w : w_) {
      const auto i = static_cast<int64_t>(g_.size() - alone);
      g_.push_back(g_.size() < alone ? at::randn_like(w) : shared.narrow(0, 5 * i, 5));
      first_.push_back(at::zeros_like(w));
      second_.push_back(at::zeros_like(w));
      expected_.push_back(w.clone());
      expected_first_.push_back(at::zeros_like(w));
      expected_second_.push_back(at::zeros_like(w));
    }
  }

  // Makes a FusedUpdate. Every second parameter gets a rounded copy of type `copies`, unless `copies` is kFloat.
  FusedUpdate Make(bool has_first, bool has_second, at::ScalarType copies) {
    std::vector<FusedUpdate::Parameter> parameters;
    copies_.assign(w_.size(), at::Tensor());
    for (size_t i = 0; i < w_.size(); ++i) {
      if (copies != at::kFloat && i % 2 == 1) copies_[i] = w_[i].to(copies);
      parameters.push_back({w_[i], g_[i], has_first ? first_[i] : at::Tensor(),
                            has_second ? second_[i] : at::Tensor(), copies_[i]});
    }
    return FusedUpdate(parameters);
  }

  // Moves the gradients' storages to other memory, and fills the old memory with NaN. Gradients that share a storage
  // still share a storage afterwards.
  void MoveGradients() {
    std::set<const c10::StorageImpl*> moved;
    for (const at::Tensor& gradient : g_) {
      const at::Storage& memory = gradient.storage();
      if (!moved.insert(memory.unsafeGetStorageImpl()).second) continue;
      const auto bytes = static_cast<int64_t>(memory.nbytes());
      const at::Tensor before = at::empty({0}, gradient.options().dtype(at::kByte))
                                    .set_(memory, /*storage_offset=*/0, {bytes}, {1});
      const at::Tensor after = before.clone();
      before.fill_(0xff);
      left_.push_back(memory.set_data_ptr(
          after.storage().set_data_ptr(at::DataPtr(nullptr, gradient.device()))));
    }
  }

  std::vector<at::Tensor> Scaled(double scale) const {
    std::vector<at::Tensor> scaled;
    for (const at::Tensor& gradient : g_) scaled.push_back(gradient / scale);
    return scaled;
  }

  void ZeroMoments() {
    for (const auto* moments : {&first_, &second_, &expected_first_, &expected_second_}) {
      for (const at::Tensor& tensor : *moments) tensor.zero_();
    }
  }

  // Sets some parameters and some gradients to 0.
  void SetSomeToZero() {
    for (const at::Tensor& tensor : {w_[1], expected_[1], g_[1], w_[3], expected_[3], g_[5]}) {
      tensor.zero_();
    }
  }

  // Updates expected_, expected_first_ and expected_second_ by the formulas of LAMB (You et al., 2020, algorithm 2).
  void ExpectLamb(const LambRules& rules, double lr, double t, double scale) {
    const std::vector<at::Tensor> gradients = Scaled(scale);
    for (size_t i = 0; i < expected_.size(); ++i) {
      const at::Tensor &w = expected_[i], &g = gradients[i];
      const at::Tensor &m = expected_first_[i], &v = expected_second_[i];
      m.mul_(rules.beta1).add_(g, 1 - rules.beta1);
      v.mul_(rules.beta2).addcmul_(g, g, 1 - rules.beta2);
      const at::Tensor mean = m / (1 - std::pow(rules.beta1, t));
      const at::Tensor mean_square = v / (1 - std::pow(rules.beta2, t));
      const at::Tensor u = mean / (mean_square.sqrt() + rules.epsilon) + w * rules.weight_decay;
      w.sub_(u, lr * (rules.adapts ? RatioOrOne(Norm(w), Norm(u)) : 1));
    }
  }

  // Updates expected_ and expected_first_ by the formulas of LARS (You et al., 2017, algorithm 1).
  void ExpectLars(const LarsRules& rules, double lr, double scale) {
    const std::vector<at::Tensor> gradients = Scaled(scale);
    for (size_t i = 0; i < expected_.size(); ++i) {
      const at::Tensor &w = expected_[i], &g = gradients[i], &m = expected_first_[i];
      const double below = Norm(g) + Norm(w) * rules.weight_decay;
      const double ratio = rules.adapts ? RatioOrOne(Norm(w) * rules.trust, below) : 1;
      const at::Tensor change = (g + w * rules.weight_decay) * (lr * ratio);
      if (rules.momentum == 0) {
        w.sub_(change);
      } else {
        m.mul_(rules.momentum).add_(change);
        w.sub_(m);
      }
    }
  }

  void ExpectAsExpected() const {
    for (size_t i = 0; i < w_.size(); ++i) {
      EXPECT_TRUE(at::allclose(w_[i], expected_[i], 1e-5, 1e-6)) << i;
      EXPECT_TRUE(at::allclose(first_[i], expected_first_[i], 1e-5, 1e-6)) << i;
      EXPECT_TRUE(at::allclose(second_[i], expected_second_[i], 1e-5, 1e-6)) << i;
      if (copies_[i].defined()) {
        EXPECT_TRUE(at::equal(copies_[i], w_[i].to(copies_[i].scalar_type()))) << i;
      }
    }
  }

  at::Tensor Scalar(double value) const { return at::full({}, value, at::kCUDA); }

  std::vector<at::Tensor> w_, g_, first_, second_, copies_;
  std::vector<at::Tensor> expected_, expected_first_, expected_second_;
  std::vector<at::DataPtr> left_;  // the gradients' previous memory
};

TEST_F(FusedUpdateTest, AdamIsATens) {
  // The epsilon is larger than usual. With a small epsilon, the update would depend mostly on rounding errors if a
  // gradient and the weight decay almost cancel each other.
  constexpr double kEpsilon = 1e-4;
  for (const bool decoupled : {false, true}) {
    const AdamRules rules{.beta1 = 0.9,
                          .beta2 = 0.999,
                          .epsilon = kEpsilon,
                          .weight_decay = 0.1,
                          .decoupled = decoupled};
    const FusedUpdate update = Make(true, true, decoupled ? at::kBFloat16 : at::kHalf);
    FusedUpdate::Scalars scalars{.lr = Scalar(0.02), .updates = Scalar(0), .skip = Scalar(0)};
    ZeroMoments();
    for (const double scale : {1.0, 8.0, 1.0}) {
      MoveGradients();
      scalars.grad_scale = scale == 1 ? at::Tensor() : Scalar(scale);
      scalars.updates.add_(1);
      update.Adam(rules, scalars);
      const std::vector<at::Tensor> steps(w_.size(), scalars.updates);
      if (decoupled) {
        at::_fused_adamw_(expected_, Scaled(scale), expected_first_, expected_second_, {}, steps,
                          scalars.lr, 0.9, 0.999, 0.1, kEpsilon, /*amsgrad=*/false,
                          /*maximize=*/false);
      } else {
        at::_fused_adam_(expected_, Scaled(scale), expected_first_, expected_second_, {}, steps,
                         scalars.lr, 0.9, 0.999, 0.1, kEpsilon, /*amsgrad=*/false,
                         /*maximize=*/false);
      }
      ExpectAsExpected();
    }
  }
}

TEST_F(FusedUpdateTest, SgdIsATens) {
  for (const auto& [momentum, nesterov] : {std::pair(0.0, false), {0.9, false}, {0.9, true}}) {
    SCOPED_TRACE(testing::Message() << momentum << (nesterov ? ", Nesterov" : ""));
    const SgdRules rules{.momentum = momentum, .weight_decay = 0.1, .nesterov = nesterov};
    const bool has_momentum = momentum > 0;
    const FusedUpdate update = Make(has_momentum, false, at::kBFloat16);
    FusedUpdate::Scalars scalars{.lr = Scalar(0.02), .skip = Scalar(0)};
    ZeroMoments();
    for (const double scale : {1.0, 8.0, 1.0}) {
      MoveGradients();
      scalars.grad_scale = scale == 1 ? at::Tensor() : Scalar(scale);
      update.Sgd(rules, scalars);
      at::_fused_sgd_(expected_, Scaled(scale),
                      has_momentum ? expected_first_ : std::vector<at::Tensor>(), 0.1, momentum,
                      scalars.lr, /*dampening=*/0, nesterov, /*maximize=*/false,
                      /*is_first_step=*/false);
      ExpectAsExpected();
    }
  }
}

TEST_F(FusedUpdateTest, LambIsThePapers) {
  for (const auto& [adapts, decay] : {std::pair(true, 0.1), {true, 0.0}, {false, 0.1}}) {
    SCOPED_TRACE(testing::Message() << (adapts ? "adapts, decay " : "decay ") << decay);
    const LambRules rules{
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = decay, .adapts = adapts};
    SetSomeToZero();
    ZeroMoments();
    const FusedUpdate update = Make(true, true, adapts ? at::kBFloat16 : at::kHalf);
    FusedUpdate::Scalars scalars{.lr = Scalar(0.02), .updates = Scalar(0), .skip = Scalar(0)};
    double t = 0;
    for (const double scale : {1.0, 8.0, 1.0}) {
      MoveGradients();
      scalars.grad_scale = scale == 1 ? at::Tensor() : Scalar(scale);
      scalars.updates.add_(1);
      update.Lamb(rules, scalars);
      ExpectLamb(rules, 0.02, ++t, scale);
      ExpectAsExpected();
    }
  }
}

TEST_F(FusedUpdateTest, LarsIsThePapers) {
  for (const auto& [adapts, momentum, decay] :
       {std::tuple(true, 0.9, 0.1), {true, 0.9, 0.0}, {true, 0.0, 0.1}, {false, 0.9, 0.1}}) {
    SCOPED_TRACE(testing::Message() << (adapts ? "adapts, momentum " : "momentum ") << momentum
                                    << ", decay " << decay);
    const LarsRules rules{
        .momentum = momentum, .weight_decay = decay, .trust = 0.02, .adapts = adapts};
    SetSomeToZero();
    ZeroMoments();
    const FusedUpdate update = Make(momentum > 0, false, at::kHalf);
    FusedUpdate::Scalars scalars{.lr = Scalar(0.5), .skip = Scalar(0)};
    for (const double scale : {1.0, 8.0, 1.0}) {
      MoveGradients();
      scalars.grad_scale = scale == 1 ? at::Tensor() : Scalar(scale);
      update.Lars(rules, scalars);
      ExpectLars(rules, 0.5, scale);
      ExpectAsExpected();
    }
  }
}

TEST_F(FusedUpdateTest, NormsAreTheSameBitsEachTime) {
  const FusedUpdate update = Make(true, true, at::kFloat);
  const FusedUpdate::Scalars scalars{.lr = Scalar(0.02), .updates = Scalar(1), .skip = Scalar(0)};
  std::vector<at::Tensor> once;
  for (const bool again : {false, true}) {
    for (size_t i = 0; i < w_.size(); ++i) w_[i].copy_(expected_[i]);
    ZeroMoments();
    update.Lamb({.weight_decay = 0.1}, scalars);
    update.Lars({.momentum = 0.9}, scalars);
    for (size_t i = 0; i < w_.size(); ++i) {
      if (again) {
        EXPECT_TRUE(at::equal(w_[i], once[i])) << i;
      } else {
        once.push_back(w_[i].clone());
      }
    }
  }
}

TEST_F(FusedUpdateTest, ASkippedUpdateChangesNothing) {
  const FusedUpdate update = Make(true, true, at::kBFloat16);
  copies_[1].fill_(7);
  for (size_t i = 0; i < w_.size(); ++i) {
    g_[i].fill_(i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN()
                           : std::numeric_limits<double>::infinity());
    for (const at::Tensor& moment : {first_[i], expected_first_[i]}) moment.fill_(0.5);
    for (const at::Tensor& moment : {second_[i], expected_second_[i]}) moment.fill_(0.25);
  }
  const FusedUpdate::Scalars scalars{.lr = Scalar(0.02), .updates = Scalar(0), .skip = Scalar(1)};
  update.Adam({}, scalars);
  update.Sgd({.momentum = 0.9}, scalars);
  for (const bool adapts : {false, true}) {
    update.Lamb({.adapts = adapts}, scalars);
    update.Lars({.momentum = 0.9, .adapts = adapts}, scalars);
  }
  for (size_t i = 0; i < w_.size(); ++i) {
    EXPECT_TRUE(at::equal(w_[i], expected_[i]));
    EXPECT_TRUE(at::equal(first_[i], expected_first_[i]));
    EXPECT_TRUE(at::equal(second_[i], expected_second_[i]));
  }
  EXPECT_EQ(copies_[1].to(at::kFloat).min().item<float>(), 7);
}

}  // namespace
}  // namespace lockstep::ops
