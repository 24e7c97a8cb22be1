#include "ops/pixels/pixel_mean.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

class PixelMeanTest : public OpTest {};

TEST_P(PixelMeanTest, IsTheTwinsAndItsGradientLiesAsTheImageDoes) {
  for (const at::MemoryFormat format :
       {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
             {5, 24, 7, 7}, {1, 3, 1, 9}, {2, 8, 4, 1}, {3, 1, 6, 5}, {0, 8, 7, 7}}) {
      const at::Tensor x = at::randn(sizes, options()).contiguous(format).requires_grad_();
      const at::Tensor same = x.detach().clone().requires_grad_();
      const at::Tensor y = PixelMean(x);
      const at::Tensor expected = PixelMeanTwin(same);
      EXPECT_TRUE(at::equal(y, expected)) << at::IntArrayRef(sizes);
      const at::Tensor dy = at::randn_like(y);
      y.backward(dy);
      expected.backward(dy);
      EXPECT_TRUE(at::equal(x.grad(), same.grad())) << at::IntArrayRef(sizes);
      EXPECT_TRUE(x.grad().is_contiguous(format)) << at::IntArrayRef(sizes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PixelMeanTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
