// Compares values and gradients with those of the same operation in float64. LinearTwin() is tested on any machine, and
// the products without transposes if there is a GPU.

#include "ops/product/columns_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ops/testing/linear_op_test.h"

namespace lockstep::ops {
namespace {

class ColumnsLinearTest : public LinearOpTest {
 protected:
  // Returns a tensor [count, rows, columns] that lies by columns.
  at::Tensor Columns(int64_t count, int64_t rows, int64_t columns) const {
    return Random({count, columns, rows}).transpose(1, 2);
  }
};

TEST_P(ColumnsLinearTest, IsPyTorchs) {
  struct Case {
    int64_t count, rows, inputs, outputs;
  };
  for (const Case& shape : {Case{1, 8, 8, 16}, Case{3, 24, 49, 98}, Case{5, 33, 7, 13},
                            Case{2, 64, 196, 384}, Case{4, 40, 16, 1}}) {
    for (const bool has_bias : {true, false}) {
      SCOPED_TRACE(testing::Message() << shape.count << " of " << shape.rows << ", " << shape.inputs
                                      << " to " << shape.outputs << ", bias " << has_bias);
      const at::Tensor x = Columns(shape.count, shape.rows, shape.inputs).requires_grad_();
      const at::Tensor weight = Parameter({shape.outputs, shape.inputs});
      const at::Tensor bias = has_bias ? Parameter({shape.outputs}) : at::Tensor();
      const at::Tensor y = ColumnsLinear(x, weight, bias);
      EXPECT_EQ(y.scalar_type(), dtype());
      EXPECT_EQ(y.transpose(1, 2).is_contiguous(), Is16BitOnGpu() || shape.outputs == 1);
      const at::Tensor dy = Random(y.sizes());
      y.backward(dy);

      const at::Tensor exact_x = Exact(x), exact_weight = Exact(weight);
      const at::Tensor exact_bias = has_bias ? Exact(bias) : at::Tensor();
      at::Tensor expected = at::matmul(exact_x, exact_weight.t());
      if (has_bias) expected = expected + exact_bias;
      expected.backward(dy.to(at::kDouble));
      EXPECT_TRUE(IsNear(y, expected, tolerance()));
      EXPECT_TRUE(IsNear(x.grad(), exact_x.grad(), tolerance()));
      EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(IsNear(weight.grad(), exact_weight.grad(), weight_tolerance()));
      if (has_bias) EXPECT_TRUE(IsNear(bias.grad(), exact_bias.grad(), weight_tolerance()));
    }
  }
}

TEST_P(ColumnsLinearTest, AddsToTheGradientsThatAreThere) {
  const at::Tensor x = Columns(3, 16, 24);
  const at::Tensor dy = Random({3, 16, 40});
  const at::Tensor weight = Parameter({40, 24}), bias = Parameter({40});
  ExpectAddsToGradients([&] { ColumnsLinear(x, weight, bias).backward(dy); }, {weight, bias});
}

TEST_P(ColumnsLinearTest, ComputesOnlyTheGradientsAskedFor) {
  for (const int asked : {0, 1, 2}) {
    const at::Tensor leaves[] = {Columns(2, 8, 16), Parameter({16, 16}), Parameter({16})};
    for (int i = 0; i < 3; ++i) leaves[i].set_requires_grad(i == asked);
    ColumnsLinear(leaves[0], leaves[1], leaves[2]).backward(Random({2, 8, 16}));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(leaves[i].grad().defined(), i == asked) << i;
  }
}

TEST_P(ColumnsLinearTest, IsForTransposedMatricesOnGpus) {
  const at::Tensor weight = Parameter({32, 16});
  EXPECT_EQ(IsForColumnsLinear(Columns(2, 64, 16), weight), Is16BitOnGpu());
  EXPECT_FALSE(IsForColumnsLinear(Columns(2, 64, 16).contiguous(), weight));
  EXPECT_FALSE(IsForColumnsLinear(Columns(2, 64, 16).flatten(0, 1), weight));
  // The weight is larger than the matrices.
  EXPECT_FALSE(IsForColumnsLinear(Columns(2, 4, 16), weight));
}

INSTANTIATE_TEST_SUITE_P(, ColumnsLinearTest, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
