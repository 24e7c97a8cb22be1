// Compares values and gradients with those of PyTorch's max-pooling in float64. The values must be equal, because only
// the sums of gradients are rounded.

#include "ops/norm/max_pool.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

// The shapes of x. Most numbers of channels are multiples of a pack. Some images are as small as a window, and some
// have odd sides.
const std::vector<std::vector<int64_t>> kShapes = {
    {1, 8, 3, 3}, {2, 3, 9, 7}, {3, 24, 17, 5}, {2, 2048, 4, 4}, {5, 64, 56, 56}, {2, 16, 2, 31}};

struct Case {
  int64_t window, stride, padding;
};
constexpr Case kCases[] = {{3, 2, 1}, {2, 2, 0}, {3, 1, 1}, {2, 3, 1}, {3, 3, 0}, {4, 2, 1}};

class MaxPoolTest : public OpTest {
 protected:
  at::Tensor Random(at::IntArrayRef sizes) const {
    return at::randn(sizes, options()).contiguous(at::MemoryFormat::ChannelsLast);
  }
  double tolerance() const {
    return dtype() == at::kFloat ? 1e-6 : dtype() == at::kHalf ? 2e-3 : 1.6e-2;
  }
};

TEST_P(MaxPoolTest, IsPyTorchs) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    for (const auto& [window, stride, padding] : kCases) {
      if (sizes[2] + 2 * padding < window) continue;
      SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << ", window " << window
                                      << ", stride " << stride << ", padding " << padding);
      // x has many equal values, and the pooling must take the first of several equal greatest values.
      const at::Tensor x = (4 * Random(sizes)).round().requires_grad_();
      const at::Tensor y = MaxPool(x, window, stride, padding);
      const at::Tensor exact = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor expected = at::max_pool2d(exact, window, stride, padding);
      EXPECT_EQ(y.scalar_type(), dtype());
      EXPECT_TRUE(at::equal(y.to(at::kDouble), expected));
      const at::Tensor dy = Random(expected.sizes());
      y.backward(dy);
      expected.backward(dy.to(at::kDouble));
      EXPECT_TRUE(IsNear(x.grad(), exact.grad(), tolerance()));
    }
  }
}

// Checks that backward adds d_passed, the gradient of the other operations that read x. The three d_passed are
// channels-last images, a view of images with more channels, and contiguous images.
TEST_P(MaxPoolTest, AddsTheGradientOfWhoElseReadsIt) {
  for (const std::vector<int64_t>& sizes : kShapes) {
    SCOPED_TRACE(at::IntArrayRef(sizes));
    if (sizes[2] < 2 || sizes[3] < 2) continue;
    std::vector<int64_t> wide = sizes;
    wide[1] *= 2;
    for (const at::Tensor& d_passed : {Random(sizes), Random(wide).narrow(1, sizes[1], sizes[1]),
                                       Random(sizes).contiguous(at::MemoryFormat::Contiguous)}) {
      const at::Tensor x = Random(sizes).requires_grad_();
      const auto [pooled, passed] = ForkedMaxPool(x, 2, 2, 0);
      EXPECT_TRUE(at::equal(passed, x));
      const at::Tensor exact = x.detach().to(at::kDouble).requires_grad_();
      const at::Tensor expected = at::max_pool2d(exact, {2, 2}, {2, 2});
      const at::Tensor dy = Random(expected.sizes());
      const auto d_exact = torch::autograd::grad({expected}, {exact}, {dy.to(at::kDouble)})[0] +
                           d_passed.to(at::kDouble);
      const auto both = torch::autograd::grad({pooled, passed}, {x}, {dy, d_passed},
                                              /*retain_graph=*/true)[0];
      EXPECT_TRUE(IsNear(both, d_exact, tolerance()));
      const auto one = torch::autograd::grad({passed}, {x}, {d_passed})[0];
      EXPECT_TRUE(at::equal(one, d_passed));
    }
  }
}

TEST_P(MaxPoolTest, NotANumberIsTheGreatest) {
  const at::Tensor x = Random({2, 16, 9, 9});
  x[1][3][4][4].fill_(std::numeric_limits<float>::quiet_NaN());
  x[0][5][0][0].fill_(std::numeric_limits<float>::infinity());
  x[0][7].fill_(-std::numeric_limits<float>::infinity());
  const at::Tensor y = MaxPool(x, 3, 2, 1);
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), at::max_pool2d(x.to(at::kDouble), 3, 2, 1), 0, 0,
                           /*equal_nan=*/true));
}

TEST_P(MaxPoolTest, TakesAnyAddressAndStride) {
  const int64_t count = 3 * 16 * 8 * 8;
  const auto shifted = [&](int64_t side) {
    const int64_t values = 3 * 16 * side * side;
    return at::randn({values + 1}, options())
        .narrow(0, 1, values)
        .view({3, side, side, 16})
        .permute({0, 3, 1, 2});
  };
  ASSERT_EQ(shifted(8).numel(), count);
  const at::Tensor x = shifted(8);
  const at::Tensor dy = shifted(4);
  const auto run = [](const at::Tensor& values, const at::Tensor& gradient) {
    const at::Tensor leaf = values.detach().requires_grad_();
    const at::Tensor y = MaxPool(leaf, 3, 2, 1);
    y.backward(gradient);
    return std::pair(y.detach(), leaf.grad());
  };
  const auto expected = run(x.clone(at::MemoryFormat::Contiguous), dy.contiguous());
  for (const auto& found : {run(x, dy), run(x.clone(), dy), run(x, dy.contiguous())}) {
    EXPECT_TRUE(at::equal(found.first, expected.first));
    EXPECT_TRUE(IsNear(found.second, expected.second.to(at::kDouble), tolerance()));
  }
}

INSTANTIATE_TEST_SUITE_P(, MaxPoolTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
