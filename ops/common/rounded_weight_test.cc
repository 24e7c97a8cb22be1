// Tests which weights have rounded copies, and how long the copies are kept.

#include "ops/common/rounded_weight.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

namespace lockstep::ops {
namespace {

at::Tensor Weight() { return at::randn({4, 8}).requires_grad_(); }

TEST(RoundedWeight, IsTheWeightRounded) {
  const at::Tensor weight = Weight();
  const at::Tensor rounded = Rounded(weight, at::kBFloat16);
  EXPECT_TRUE(at::equal(rounded, weight.detach().to(at::kBFloat16)));
  // No WeightCopies is in use, so the copy is not kept.
  EXPECT_NE(Rounded(weight, at::kBFloat16).const_data_ptr(), rounded.const_data_ptr());
  EXPECT_EQ(Rounded(weight, at::kFloat).const_data_ptr(), weight.const_data_ptr());
}

TEST(RoundedWeight, IsKeptWhereCopiesAreInUse) {
  const at::NoGradGuard no_grad;
  WeightCopies copies;
  const at::Tensor weight = Weight();
  EXPECT_FALSE(copies.Of(weight).defined());
  {
    const WeightCopies::Use use(&copies);
    const at::Tensor rounded = Rounded(weight, at::kBFloat16);
    EXPECT_EQ(Rounded(weight, at::kBFloat16).const_data_ptr(), rounded.const_data_ptr());
    EXPECT_EQ(copies.Of(weight.detach()).const_data_ptr(), rounded.const_data_ptr());
    // Only the copy of the first type is kept.
    EXPECT_EQ(Rounded(weight, at::kHalf).scalar_type(), at::kHalf);
    EXPECT_EQ(copies.Of(weight).scalar_type(), at::kBFloat16);
    // The optimizer writes the copy whenever it updates the weight, so Rounded() must return the copy's content, here
    // 7, without rounding the weight again.
    rounded.fill_(7);
    EXPECT_EQ(Rounded(weight, at::kBFloat16)[0][0].item<float>(), 7);
  }
  EXPECT_NE(Rounded(weight, at::kBFloat16)[0][0].item<float>(), 7);
}

TEST(RoundedWeight, CopiesKeepTheOrderInMemory) {
  const at::NoGradGuard no_grad;
  WeightCopies copies;
  const WeightCopies::Use use(&copies);
  const at::Tensor weight =
      at::randn({4, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  EXPECT_EQ(Rounded(weight, at::kBFloat16).strides(), weight.strides());
}

TEST(RoundedWeight, OnlyWhatIsTrainedIsKept) {
  const at::NoGradGuard no_grad;
  WeightCopies copies;
  const WeightCopies::Use use(&copies);
  const at::Tensor frozen = at::randn({4, 8});
  Rounded(frozen, at::kBFloat16);
  EXPECT_FALSE(copies.Of(frozen).defined());
}

TEST(RoundedWeight, NoneIsMadeOnceTheyAreSettled) {
  const at::NoGradGuard no_grad;
  WeightCopies copies;
  const WeightCopies::Use use(&copies);
  const at::Tensor early = Weight();
  const at::Tensor late = Weight();
  const at::Tensor forgotten = Weight();
  Rounded(early, at::kBFloat16);
  Rounded(forgotten, at::kBFloat16);
  copies.Settle();
  copies.Forget(forgotten);
  EXPECT_TRUE(copies.Of(early).defined());
  for (const at::Tensor& weight : {late, forgotten}) {
    EXPECT_TRUE(at::equal(Rounded(weight, at::kBFloat16), weight.to(at::kBFloat16)));
    EXPECT_FALSE(copies.Of(weight).defined());
  }
}

TEST(RoundedWeight, IsMadeAgainAfterAChangeInPlace) {
  const at::NoGradGuard no_grad;
  WeightCopies copies;
  const WeightCopies::Use use(&copies);
  const at::Tensor weight = Weight();
  const at::Tensor rounded = Rounded(weight, at::kBFloat16);
  weight.clamp_(-0.1, 0.1);
  EXPECT_EQ(Rounded(weight, at::kBFloat16).const_data_ptr(), rounded.const_data_ptr());
  EXPECT_TRUE(at::equal(rounded, weight.to(at::kBFloat16)));
}

TEST(RoundedWeight, UsesNest) {
  const at::NoGradGuard no_grad;
  WeightCopies outer, inner;
  const at::Tensor weight = Weight();
  const WeightCopies::Use use_outer(&outer);
  {
    const WeightCopies::Use use_inner(&inner);
    Rounded(weight, at::kBFloat16);
  }
  EXPECT_TRUE(inner.Of(weight).defined());
  EXPECT_FALSE(outer.Of(weight).defined());
  Rounded(weight, at::kBFloat16);
  EXPECT_TRUE(outer.Of(weight).defined());
}

}  // namespace
}  // namespace lockstep::ops
