// Compares values and gradients with those of the same operation in float64. LinearTwin() is tested on any machine, and
// the fused operation and its kernels are tested if there is a GPU.

#include "ops/product/linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "ops/testing/linear_op_test.h"

namespace lockstep::ops {
namespace {

class LinearTest : public LinearOpTest {};

TEST_P(LinearTest, IsPyTorchs) {
  struct Case {
    std::vector<int64_t> leading;
    int64_t inputs, outputs;
  };
  for (const Case& shape :
       {Case{{1}, 1, 1}, Case{{1}, 8, 16}, Case{{5}, 1, 7}, Case{{33}, 24, 40},
        Case{{2, 9}, 16, 48}, Case{{3, 2, 5}, 7, 13}, Case{{4, 64}, 128, 384}}) {
    for (const WeightLayout layout : {WeightLayout::kInputsOutputs, WeightLayout::kOutputsInputs}) {
      for (const bool has_bias : {true, false}) {
        const bool inputs_first = layout == WeightLayout::kInputsOutputs;
        SCOPED_TRACE(testing::Message() << at::IntArrayRef(shape.leading) << " " << shape.inputs
                                        << " to " << shape.outputs << ", inputs first "
                                        << inputs_first << ", bias " << has_bias);
        std::vector<int64_t> x_sizes = shape.leading;
        x_sizes.push_back(shape.inputs);
        std::vector<int64_t> y_sizes = shape.leading;
        y_sizes.push_back(shape.outputs);
        const at::Tensor x = Random(x_sizes).requires_grad_();
        const at::Tensor weight = inputs_first ? Parameter({shape.inputs, shape.outputs})
                                               : Parameter({shape.outputs, shape.inputs});
        const at::Tensor bias = has_bias ? Parameter({shape.outputs}) : at::Tensor();
        const at::Tensor dy = Random(y_sizes);
        const at::Tensor y = Linear(x, weight, bias, layout);
        EXPECT_EQ(y.scalar_type(), dtype());
        y.backward(dy);

        const at::Tensor exact_x = Exact(x);
        const at::Tensor exact_weight = Exact(weight);
        at::Tensor expected = at::matmul(exact_x, inputs_first ? exact_weight : exact_weight.t());
        const at::Tensor exact_bias = has_bias ? Exact(bias) : at::Tensor();
        if (has_bias) expected = expected + exact_bias;
        expected.backward(dy.to(at::kDouble));
        EXPECT_TRUE(IsNear(y, expected, tolerance()));
        EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
        EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
        EXPECT_TRUE(weight.grad().is_contiguous());
        EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), weight_tolerance()));
        if (!has_bias) continue;
        EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), weight_tolerance()));
      }
    }
  }
}

TEST_P(LinearTest, TakesStridedValuesAndGradients) {
  for (const WeightLayout layout : {WeightLayout::kInputsOutputs, WeightLayout::kOutputsInputs}) {
    const at::Tensor x = Random({24, 6, 5}).requires_grad_();  // read as [5, 6, 24]
    const at::Tensor weight =
        layout == WeightLayout::kInputsOutputs ? Parameter({24, 32}) : Parameter({32, 24});
    const at::Tensor bias = Parameter({32});
    const at::Tensor dy = Random({32, 6, 5}).permute({2, 1, 0});
    Linear(x.permute({2, 1, 0}), weight, bias, layout).backward(dy);

    const at::Tensor exact_x = Exact(x);
    const at::Tensor exact_weight = Exact(weight);
    const at::Tensor exact_bias = Exact(bias);
    const at::Tensor expected =
        at::matmul(exact_x.permute({2, 1, 0}),
                   layout == WeightLayout::kInputsOutputs ? exact_weight : exact_weight.t()) +
        exact_bias;
    expected.backward(dy.to(at::kDouble));
    EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
    EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), weight_tolerance()));
    EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), weight_tolerance()));

    // The gradient of a sum is an expanded tensor, whose values all share one place in memory. The bias's gradient is
    // the number of rows, 6 * 5 = 30.
    bias.mutable_grad() = at::Tensor();
    Linear(x.permute({2, 1, 0}), weight, bias, layout).sum().backward();
    EXPECT_TRUE(IsNear(bias.grad(), at::full({32}, 30, options().dtype(at::kDouble)), 1e-6));
  }
}

TEST_P(LinearTest, AddsToTheGradientsThatAreThere) {
  const at::Tensor x = Random({37, 24});
  const at::Tensor dy = Random({37, 40});
  const at::Tensor bias = Parameter({40});
  for (const WeightLayout layout : {WeightLayout::kInputsOutputs, WeightLayout::kOutputsInputs}) {
    const at::Tensor weight =
        layout == WeightLayout::kInputsOutputs ? Parameter({24, 40}) : Parameter({40, 24});
    ExpectAddsToGradients([&] { Linear(x, weight, bias, layout).backward(dy); }, {weight, bias});
    // Here the weight is used twice.
    ExpectAddsToGradients(
        [&] {
          (Linear(x, weight, bias, layout) + Linear(x, weight, /*bias=*/{}, layout)).backward(dy);
        },
        {weight, bias});
  }
}

// Computes the sum of two linear layers and a product of their input, each weighted by random numbers. The input is a
// result, as in a model, and not a leaf.
TEST_P(LinearTest, AddsTheGradientsFromOtherReadersOfItsInput) {
  const at::Tensor first = Parameter({32, 24}), second = Parameter({40, 24}),
                   bias = Parameter({32});
  const at::Tensor leaf = Random({6, 5, 24}).requires_grad_();
  const at::Tensor weights[] = {Random({6, 5, 32}), Random({6, 5, 40}), Random({6, 5, 24})};
  for (const bool is_expanded :
       {false, true}) {  // whether all values of the last gradient share one place
    for (const bool uses_layers : {true, false}) {
      SCOPED_TRACE(testing::Message() << is_expanded << uses_layers);
      leaf.mutable_grad() = first.mutable_grad() = second.mutable_grad() = at::Tensor();
      const at::Tensor x = leaf.neg();
      const LinearFork one = ForkedLinear(x, first, bias, WeightLayout::kOutputsInputs);
      const LinearFork two = ForkedLinear(one.x, second, /*bias=*/{}, WeightLayout::kOutputsInputs);
      EXPECT_TRUE(at::equal(two.x, x));
      EXPECT_TRUE(at::equal(one.y, Linear(x, first, bias, WeightLayout::kOutputsInputs)));
      at::Tensor loss = is_expanded ? two.x.sum() : (two.x * weights[2]).sum();
      if (uses_layers) loss = loss + (one.y * weights[0]).sum() + (two.y * weights[1]).sum();
      loss.backward();

      const at::Tensor exact = Exact(leaf), exact_first = Exact(first),
                       exact_second = Exact(second);
      const at::Tensor same = -exact;
      at::Tensor expected = is_expanded ? same.sum() : (same * weights[2]).sum();
      if (uses_layers) {
        expected = expected + (at::matmul(same, exact_first.t()) * weights[0]).sum() +
                   (at::matmul(same, exact_second.t()) * weights[1]).sum();
      }
      expected.backward();
      EXPECT_TRUE(IsNear(leaf.grad(), exact.grad(), tolerance()));
      if (!uses_layers) continue;
      EXPECT_TRUE(IsNear(first.grad(), exact_first.grad(), weight_tolerance()));
      EXPECT_TRUE(IsNear(second.grad(), exact_second.grad(), weight_tolerance()));
    }
  }
}

TEST_P(LinearTest, GradientsWithoutRowsAreZeros) {
  const at::Tensor weight = Parameter({24, 40});
  const at::Tensor bias = Parameter({40});
  Linear(Random({0, 24}), weight, bias, WeightLayout::kInputsOutputs).backward(Random({0, 40}));
  EXPECT_EQ(weight.grad().abs().sum().item<float>(), 0);
  EXPECT_EQ(bias.grad().abs().sum().item<float>(), 0);
}

TEST_P(LinearTest, ComputesOnlyTheGradientsAskedFor) {
  for (const WeightLayout layout : {WeightLayout::kInputsOutputs, WeightLayout::kOutputsInputs}) {
    for (const int asked : {0, 1, 2}) {
      const at::Tensor leaves[] = {Random({9, 16}), Parameter({16, 16}), Parameter({16})};
      for (int i = 0; i < 3; ++i) leaves[i].set_requires_grad(i == asked);
      Linear(leaves[0], leaves[1], leaves[2], layout).backward(Random({9, 16}));
      for (int i = 0; i < 3; ++i) EXPECT_EQ(leaves[i].grad().defined(), i == asked) << i;
    }
  }
}

TEST_P(LinearTest, TheResultMayBeWrittenTo) {
  const at::Tensor x = Random({4, 3, 8}).requires_grad_();
  Linear(x, Parameter({8, 8}), Parameter({8}), WeightLayout::kInputsOutputs)
      .relu_()
      .backward(Random({4, 3, 8}));
  EXPECT_TRUE(x.grad().defined());
}

TEST_P(LinearTest, TakesNoRows) {
  const at::Tensor x = Random({0, 8}).requires_grad_();
  const at::Tensor weight = Parameter({8, 16});
  const at::Tensor bias = Parameter({16});
  const at::Tensor y = Linear(x, weight, bias, WeightLayout::kInputsOutputs);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 16}));
  y.backward(at::empty_like(y));
  EXPECT_EQ(weight.grad().abs().sum().item<double>(), 0);
  EXPECT_EQ(bias.grad().abs().sum().item<double>(), 0);
}

TEST_P(LinearTest, ColumnSumsAreExact) {
  for (const int64_t rows : {0, 1, 7, 8, 9, 333, 16384}) {
    for (const int64_t columns : {1, 3, 8, 24, 33, 256, 264, 384, 3072}) {
      if (rows * columns > 20'000'000 && device() == at::kCPU) continue;
      SCOPED_TRACE(testing::Message() << rows << " x " << columns);
      const at::Tensor x = Random({rows, columns});
      const at::Tensor sums = ColumnSums(x);
      EXPECT_EQ(sums.scalar_type(), at::kFloat);
      EXPECT_TRUE(IsNear(sums, x.to(at::kDouble).sum(0), 1e-5));
      EXPECT_TRUE(at::equal(sums, ColumnSums(x)));
    }
  }
  const at::Tensor wide = Random({3, 300001});
  EXPECT_TRUE(IsNear(ColumnSums(wide), wide.to(at::kDouble).sum(0), 1e-5));
  const at::Tensor odd = Random({100 * 64 + 1}).narrow(0, 1, 100 * 64).view({100, 64});
  EXPECT_TRUE(IsNear(ColumnSums(odd), odd.to(at::kDouble).sum(0), 1e-5));
  EXPECT_TRUE(IsNear(ColumnSums(odd.t()), odd.to(at::kDouble).sum(1), 1e-5));
}

TEST_P(LinearTest, ABadColumnStaysInItsColumn) {
  const at::Tensor good = Random({500, 40});
  const at::Tensor bad = good.clone();
  bad[123][17].fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor same = ColumnSums(good).eq(ColumnSums(bad));
  EXPECT_EQ(same.sum().item<int64_t>(), 39);
  EXPECT_FALSE(same[17].item<bool>());
}

INSTANTIATE_TEST_SUITE_P(, LinearTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
