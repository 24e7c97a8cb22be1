// Checks CountFlops() on matrix products and convolutions, both ATen's and Lockstep's own.

#include "observe/flops.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include "ops/convolution/convolution_planner.h"
#include "ops/product/matrix_product.h"

namespace lockstep {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

TEST(CountFlops, OfProducts) {
  const at::Tensor a = at::ones({3, 5});
  const at::Tensor b = at::ones({5, 7});
  EXPECT_EQ(CountFlops([&] { at::mm(a, b); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(CountFlops([&] { at::addmm(at::ones({7}), a, b); }), 2 * 3 * 5 * 7);
}

TEST(CountFlops, OfConvolutions) {
  const at::Tensor x = at::ones({2, 3, 9, 8});
  const at::Tensor weight = at::ones({5, 3, 3, 3});
  EXPECT_EQ(CountFlops([&] { at::conv2d(x, weight, {}, /*stride=*/2, /*padding=*/1); }),
            2 * (2 * 5 * 5 * 4) * (3 * 3 * 3));
}

TEST(CountFlops, OfPlannedOperations) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const at::Tensor to = at::empty({16, 24}, options);
  const at::Tensor a = at::ones({16, 8}, options);
  const at::Tensor b = at::ones({8, 24}, options);
  const at::Tensor x = at::ones({2, 8, 9, 8}, options).contiguous(kLast);
  const at::Tensor weight = at::ones({16, 8, 3, 3}, options).contiguous(kLast);
  // The first call of an operation may search for a plan, and the second call uses this plan. Both calls must count the
  // same number.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(CountFlops([&] { ops::MatrixProduct(to, a, b); }), 2 * 16 * 8 * 24);
    EXPECT_EQ(CountFlops([&] { ops::PlannedConvolution(x, weight, {.stride = 2, .padding = 1}); }),
              2 * (2 * 16 * 5 * 4) * (8 * 3 * 3));
  }
}

}  // namespace
}  // namespace lockstep
