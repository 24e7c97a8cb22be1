#include "models/activation_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/common/rounded_weight.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

class ActivationCheckpoint : public testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == at::kCUDA && at::cuda::device_count() == 0) {
      GTEST_SKIP() << "needs a GPU; this machine has none";
    }
    at::manual_seed(1);
    weight_ = at::randn({8, 8}, options()).requires_grad_();
    x_ = at::randn({5, 8}, options()).requires_grad_();
    y_ = at::randn({5, 8}, options()).requires_grad_();
  }
  at::TensorOptions options() const { return at::TensorOptions(GetParam()); }

  // Returns a block with dropout and the parameter weight_. The block returns two tensors, and some tests use only the
  // first.
  ActivationBlock Block() {
    return [this](const Tensors& in) {
      ++calls_;
      recomputing_.push_back(IsRecomputing());
      const at::Tensor dropped = at::dropout(at::matmul(in[0], weight_), 0.5, /*train=*/true);
      return Tensors{at::tanh(dropped) + in[1], dropped * in[1]};
    };
  }

  // Returns random numbers that were drawn after forward and after backward, and the gradients of x, y and the weight.
  Tensors Gradients(const std::function<Tensors()>& outputs, bool use_second) {
    at::manual_seed(2);
    const Tensors out = outputs();
    const at::Tensor after = at::rand({3}, options());  // shows the state of the generator
    at::Tensor loss = out[0].to(at::kFloat).square().sum();
    if (use_second) loss = loss + out[1].to(at::kFloat).sum();
    loss.backward();
    Tensors gradients{after, at::rand({3}, options())};
    for (at::Tensor* leaf : {&x_, &y_, &weight_}) {
      gradients.push_back(leaf->grad().clone());
      leaf->mutable_grad() = at::Tensor();
    }
    return gradients;
  }

  at::Tensor weight_, x_, y_;
  int calls_ = 0;
  std::vector<bool> recomputing_;
};

TEST_P(ActivationCheckpoint, GivesTheSameGradientsAndMovesTheSameRandomNumbers) {
  for (const bool use_second : {false, true}) {
    for (const bool rounds : {false, true}) {
      at::autocast::set_autocast_enabled(GetParam(), rounds);
      at::autocast::set_autocast_dtype(GetParam(), at::kBFloat16);
      const Tensors plain = Gradients([&] { return Block()({x_, y_}); }, use_second);
      calls_ = 0;
      recomputing_.clear();
      const Tensors checkpointed =
          Gradients([&] { return CheckpointActivations({x_, y_}, Block()); }, use_second);
      at::autocast::set_autocast_enabled(GetParam(), false);
      at::autocast::clear_cache();
      EXPECT_EQ(calls_, 2);
      EXPECT_THAT(recomputing_, testing::ElementsAre(false, true));
      EXPECT_FALSE(IsRecomputing());
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(at::allclose(plain[i], checkpointed[i], 1e-5, 1e-6)) << i << " " << rounds;
      }
    }
  }
}

TEST_P(ActivationCheckpoint, TakesTheSameCopiesOfWeights) {
  ops::WeightCopies copies;
  Tensors used;
  Tensors out;
  {
    const ops::WeightCopies::Use use(&copies);
    out = CheckpointActivations({x_}, [&](const Tensors& in) {
      {
        const at::NoGradGuard no_gradients;
        used.push_back(ops::Rounded(weight_, at::kBFloat16));
      }
      return Tensors{in[0].square()};
    });
  }
  out[0].sum().backward();
  ASSERT_EQ(used.size(), 2u);
  EXPECT_TRUE(used[0].is_same(copies.Of(weight_)));
  EXPECT_TRUE(used[1].is_same(used[0]));
}

TEST_P(ActivationCheckpoint, MayReturnAParameterAndAnInput) {
  at::Tensor bias = at::randn({8}, options()).requires_grad_();
  const auto block = [&](const Tensors& in) {
    return Tensors{at::matmul(in[0], weight_), bias, in[0]};
  };
  Tensors gradients[2];
  for (const bool checkpointed : {false, true}) {
    const Tensors out = checkpointed ? CheckpointActivations({x_}, block) : block({x_});
    ((out[0] + out[1]) * out[2]).sum().backward();
    for (at::Tensor* leaf : {&x_, &weight_, &bias}) {
      gradients[checkpointed].push_back(leaf->grad().clone());
      leaf->mutable_grad() = at::Tensor();
    }
    EXPECT_TRUE(bias.is_leaf() && x_.is_leaf());
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::allclose(gradients[0][i], gradients[1][i], 1e-5, 1e-6)) << i;
  }
}

TEST_P(ActivationCheckpoint, KeepsNothingButTheInputs) {
  // The tensor `hidden`, which is neither an input nor an output of the block, is released once the block has returned.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> made;
  const Tensors out = CheckpointActivations({x_}, [&](const Tensors& in) {
    const at::Tensor hidden = at::matmul(in[0], weight_).exp();
    made.emplace_back(hidden.getIntrusivePtr());
    return Tensors{hidden.exp()};
  });
  EXPECT_TRUE(made[0].expired());
  out[0].sum().backward();
  EXPECT_EQ(made.size(), 2);
}

TEST_P(ActivationCheckpoint, IsJustTheBlockWithoutGradients) {
  const at::NoGradGuard no_grad;
  CheckpointActivations({x_, y_}, Block());
  EXPECT_EQ(calls_, 1);
}

TEST_P(ActivationCheckpoint, RefusesABlockThatChanges) {
  int calls = 0;
  const Tensors out = CheckpointActivations({x_}, [&](const Tensors& in) {
    return Tensors{calls++ == 0 ? in[0] * 2 : in[0].narrow(0, 0, 2)};
  });
  try {
    out[0].sum().backward();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("[5, 8]"));
  }
}

INSTANTIATE_TEST_SUITE_P(, ActivationCheckpoint, testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& param) {
                           return param.param == at::kCUDA ? "Gpu" : "Cpu";
                         });

}  // namespace
}  // namespace lockstep
