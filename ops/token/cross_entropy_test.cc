// Compares loss and gradient with those of PyTorch's cross-entropy. The twin (the plain ATen implementation) is tested
// on any machine, and the kernels are tested if there is a GPU.

#include "ops/token/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kIgnored = -100;  // PyTorch's default ignore_index

struct Case {
  int64_t rows, columns, classes;
};

class CrossEntropy : public OpTest {
 protected:
  // Returns the tolerance. For float32 it is the rounding error of the twin's sum over 200,003 classes with label
  // smoothing.
  double tolerance() const {
    return dtype() == at::kFloat ? 3e-4 : dtype() == at::kHalf ? 2e-3 : 2e-2;
  }

  // Returns the loss, and replaces the .grad of `logits`, which must be a leaf tensor, by the gradient of the loss.
  static at::Tensor Run(const at::Tensor& logits, const at::Tensor& target, int64_t classes,
                        double smoothing, const at::Tensor& gradient) {
    logits.mutable_grad() = at::Tensor();
    const at::Tensor loss = CrossEntropySum(logits.clone(), target, classes, smoothing, gradient);
    loss.backward(gradient);
    return loss;
  }

  // Returns rows of logits, [rows, classes], whose sums of exps are difficult for a single pass that does not know the
  // greatest logit beforehand. The logits rise in large or in small steps, fall, have the greatest logit at the
  // beginning, in the middle or at the end, or are as large as possible.
  at::Tensor HardRows(int64_t classes, double large, double least) const {
    const at::Tensor noise = at::randn({classes}, options().dtype(at::kFloat));
    const at::Tensor ramp = at::linspace(-1, 1, classes, noise.options());
    const at::Tensor is_even = at::arange(classes, noise.options()).remainder(2) == 0;
    const auto with = [](const at::Tensor& x, int64_t column, double value) {
      at::Tensor copy = x.clone();
      copy[column] = value;
      return copy;
    };
    at::Tensor late = noise.clone();
    late.narrow(0, 0, classes / 4 * 3).fill_(least);
    at::Tensor last = at::full_like(noise, least);
    last.narrow(0, classes - 1, 1).fill_(1);
    return at::stack({noise, 300 * ramp, -300 * ramp, 20 * ramp, -20 * ramp, 60 * noise, late, last,
                      with(noise, 0, 60), with(noise, classes / 2, 60),
                      with(noise, classes - 1, 60), with(noise - 120, classes / 3, 0),
                      at::full_like(noise, large), at::full_like(noise, -large),
                      at::where(is_even, -large, large).to(noise)});
  }

  // Returns rows of logits, [rows, classes], whose softmax is NaN.
  at::Tensor MarredRows(int64_t classes) const {
    const at::Tensor noise = at::randn({classes}, options().dtype(at::kFloat));
    std::vector<at::Tensor> rows = {at::full_like(noise, -INFINITY)};
    for (const float value : {NAN, INFINITY}) {
      for (const int64_t column : {int64_t{0}, classes / 2, classes - 1}) {
        for (const at::Tensor& others : {noise, rows[0]}) {
          rows.push_back(others.clone());
          rows.back()[column] = value;
        }
      }
    }
    return at::stack(rows);
  }
};

TEST_P(CrossEntropy, IsPyTorchs) {
  // Some rows have one to eight packs for each thread. Rows of 16 to 113 KiB are processed by the pipelined kernel on
  // Hopper and later GPUs. Some rows are too long for registers (50,304 columns in float32), and some do not consist of
  // whole packs.
  for (const Case& shape :
       {Case{1, 1, 1}, Case{5, 10, 10}, Case{33, 1000, 1000}, Case{7, 513, 513},
        Case{64, 50304, 50257}, Case{3, 16, 9}, Case{2, 200003, 200003}, Case{9, 128, 100},
        Case{5, 4096, 4090}, Case{3, 8192, 8192}, Case{5, 8200, 8187}, Case{4, 32768, 32761},
        Case{2, 65536, 65500}, Case{1000, 4, 4}, Case{257, 32, 31}, Case{300, 33, 33}}) {
    for (const double smoothing : {0.0, 0.1}) {
      for (const bool beforehand : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.columns << ", smoothing " << smoothing
                     << (beforehand ? ", gradient given beforehand" : ""));
        at::Tensor logits =
            (3 * at::randn({shape.rows, shape.columns}, options())).requires_grad_();
        const at::Tensor target =
            at::randint(shape.classes, {shape.rows}, at::TensorOptions(device()).dtype(at::kLong));
        target.slice(0, /*start=*/1, /*end=*/shape.rows, /*step=*/3).fill_(kIgnored);
        at::Tensor exact = logits.detach().to(at::kDouble).requires_grad_();
        const at::Tensor expected =
            at::cross_entropy_loss(exact.narrow(1, 0, shape.classes), target, {},
                                   at::Reduction::Sum, /*ignore_index=*/kIgnored, smoothing);
        expected.backward(at::full({}, 0.25, exact.options()));

        // CrossEntropySum() gets a copy, because the gradient overwrites the logits.
        const at::Tensor copy = logits.clone();
        const at::Tensor gradient = at::full({}, 0.25, options().dtype(at::kFloat));
        const at::Tensor loss = CrossEntropySum(copy, target, shape.classes, smoothing,
                                                beforehand ? gradient : at::Tensor());
        EXPECT_EQ(loss.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::allclose(loss.to(at::kDouble), expected, 1e-5, 1e-5)) << loss << expected;
        loss.backward(gradient);
        EXPECT_TRUE(at::allclose(logits.grad().to(at::kDouble), exact.grad(), tolerance(),
                                 tolerance() * 1e-2));
        const at::Tensor padding =
            logits.grad().narrow(1, shape.classes, shape.columns - shape.classes);
        EXPECT_EQ(padding.abs().sum().item<double>(), 0);
      }
    }
  }
}

TEST_P(CrossEntropy, SaysWhatDoesNotFit) {
  const at::Tensor logits = at::zeros({3, 8}, options());
  const at::Tensor target = at::zeros({3}, options(at::kLong));
  for (const at::Tensor& other :
       {target.narrow(0, 0, 2), target.unsqueeze(1), target.to(at::kInt)}) {
    EXPECT_THROW(CrossEntropySum(logits, other, 8, 0), c10::Error);
  }
  EXPECT_THROW(CrossEntropySum(logits.select(0, 0), target, 8, 0), c10::Error);
  EXPECT_THROW(CrossEntropySum(logits, target, 9, 0), c10::Error);
  if (device() == at::kCPU) {
    EXPECT_THROW(CrossEntropySum(logits, target.add(8), 8, 0), c10::Error);
  } else {
    EXPECT_THROW(CrossEntropySum(logits, target.cpu(), 8, 0), c10::Error);
  }
}

// Tests long rows, two of which are being copied for a block at the same time. Each of the two places in a block's
// shared memory is used for at least three rows.
TEST_P(CrossEntropy, ManyLongRowsForABlock) {
  if (device() == at::kCPU) GTEST_SKIP() << "the CPU has no blocks";
  const int64_t multiprocessors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  // The gradient of the loss is large, so that the tolerance does not hide errors in the softmax of a class.
  const at::Tensor gradient = at::full({}, 1000, options().dtype(at::kFloat));
  // In 16 bits a multiprocessor runs three blocks at a time for rows of 8200 columns (18 rows for a multiprocessor),
  // and one block for rows of 50304 columns (6 rows).
  for (const Case& shape :
       {Case{18 * multiprocessors + 3, 8200, 8187}, Case{6 * multiprocessors + 3, 50304, 50257}}) {
    for (const double smoothing : {0.0, 0.1}) {
      // If `marred`, some rows have a logit that is NaN or infinite, have many logits of -inf or only such logits, or
      // have a target that is not a class.
      for (const bool marred : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << ", smoothing "
                                        << smoothing << (marred ? ", marred" : ""));
        at::Tensor logits = 3 * at::randn({shape.rows, shape.columns}, options());
        at::Tensor target =
            at::randint(shape.classes, {shape.rows}, at::TensorOptions(device()).dtype(at::kLong));
        // Returns every 11th row, beginning at row `first`, so that unmarred rows come before, between and after the
        // marred rows.
        const auto rows = [](const at::Tensor& x, int64_t first) {
          return x.slice(0, first, x.size(0), 11);
        };
        if (marred) {
          rows(logits, 1).select(1, 4711).fill_(NAN);
          rows(logits, 3).select(1, shape.classes - 1).fill_(INFINITY);
          rows(logits, 4).fill_(-INFINITY);
          rows(logits, 6).slice(1, 0, shape.classes - 100).fill_(-INFINITY);
          rows(target, 6).fill_(shape.classes - 1);
          rows(target, 8).fill_(-7);
          rows(target, 9).fill_(kIgnored);
        }
        logits.requires_grad_();
        at::Tensor exact = logits.detach().to(at::kDouble).requires_grad_();
        // PyTorch throws if a target is not a class, so these targets are ignored in the reference.
        const at::Tensor known = at::where(target == -7, kIgnored, target);
        const at::Tensor expected =
            at::cross_entropy_loss(exact.narrow(1, 0, shape.classes), known, {}, at::Reduction::Sum,
                                   /*ignore_index=*/kIgnored, smoothing);
        expected.backward(gradient.to(at::kDouble));
        if (marred) rows(exact.mutable_grad(), 8).narrow(1, 0, shape.classes).fill_(NAN);

        const auto run = [&] { return Run(logits, target, shape.classes, smoothing, gradient); };
        const at::Tensor loss = run();
        const at::Tensor first = logits.grad();
        if (marred) {
          EXPECT_TRUE(std::isnan(loss.item<double>()));
        } else {
          EXPECT_TRUE(at::allclose(loss.to(at::kDouble), expected, 1e-5, 1e-5)) << loss << expected;
        }
        EXPECT_TRUE(at::allclose(first.to(at::kDouble), exact.grad(), tolerance(),
                                 tolerance() * 1e-2, /*equal_nan=*/true));
        EXPECT_EQ(first.narrow(1, shape.classes, shape.columns - shape.classes)
                      .abs()
                      .sum()
                      .item<double>(),
                  0);
        // A second run must give the same bits.
        if (!marred) {
          EXPECT_TRUE(at::equal(run(), loss));
          EXPECT_TRUE(at::equal(logits.grad(), first));
        }
      }
    }
  }
}

// Tests long rows with one to eight packs for each thread, with and without classes and padding after the last full
// pack. There is one row, or there are as many rows as blocks, or more rows than blocks.
TEST_P(CrossEntropy, HardLongRows) {
  if (device() == at::kCPU) GTEST_SKIP() << "the CPU has no blocks";
  const int64_t multiprocessors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  const int64_t pack = dtype() == at::kFloat ? 4 : 8;
  const at::Tensor gradient = at::full({}, 1000, options().dtype(at::kFloat));
  // A multiprocessor runs four blocks at a time for the shortest rows, and one for the longest.
  for (const Case& shape :
       {Case{4 * multiprocessors + 1, 1024 * pack, 1024 * pack},
        Case{4 * multiprocessors + 1, 1025 * pack, 1024 * pack + 1},
        Case{4 * multiprocessors + 1, 2050 * pack, 2048 * pack},
        Case{multiprocessors - 1, 6288 * pack, 6282 * pack + 1},
        Case{multiprocessors + 1, 7168 * pack, 7168 * pack}, Case{1, 7169 * pack, 7169 * pack - 3},
        Case{2 * multiprocessors + 1, 7169 * pack, 7169 * pack - 3}}) {
    for (const double smoothing : {0.0, 0.1}) {
      // With label smoothing the loss contains the mean of the logits, which must stay finite.
      const double large = smoothing > 0 ? 100 : dtype() == at::kHalf ? 6e4 : 3e38;
      const double least = smoothing > 0 ? -large : -INFINITY;
      // If `marred`, every second row has values whose softmax is NaN.
      for (const bool marred : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns << ", smoothing "
                                        << smoothing << (marred ? ", marred" : ""));
        const at::Tensor row = at::arange(shape.rows, options().dtype(at::kLong));
        const auto repeated = [&](const at::Tensor& rows) {
          return rows.index_select(0, row.remainder(rows.size(0)));
        };
        at::Tensor values = repeated(HardRows(shape.classes, large, least));
        const at::Tensor target = values.argmax(1);
        if (marred) {
          values = at::where((row.remainder(2) == 1).unsqueeze(1),
                             repeated(MarredRows(shape.classes)), values);
        }
        // The padding is NaN, because it must have no influence.
        const at::Tensor logits =
            at::constant_pad_nd(values.to(dtype()), {0, shape.columns - shape.classes}, NAN)
                .requires_grad_();
        at::Tensor exact = logits.detach().narrow(1, 0, shape.classes).to(at::kDouble);
        exact.requires_grad_();
        const at::Tensor expected = at::cross_entropy_loss(exact, target, {}, at::Reduction::Sum,
                                                           /*ignore_index=*/kIgnored, smoothing);
        expected.backward(gradient.to(at::kDouble));

        const auto run = [&] { return Run(logits, target, shape.classes, smoothing, gradient); };
        const at::Tensor loss = run();
        const at::Tensor first = logits.grad();
        EXPECT_TRUE(at::allclose(loss.to(at::kDouble), expected, 1e-5, 1e-5, /*equal_nan=*/true))
            << loss << expected;
        // If one class has the whole softmax, the gradient is only a rounding error, so an absolute tolerance is
        // needed.
        EXPECT_TRUE(at::allclose(first.narrow(1, 0, shape.classes).to(at::kDouble), exact.grad(),
                                 tolerance(), /*atol=*/2e-3, /*equal_nan=*/true));
        EXPECT_TRUE((first.narrow(1, shape.classes, shape.columns - shape.classes) == 0)
                        .all()
                        .item<bool>());
        // A second run must give the same bits.
        EXPECT_TRUE(at::allclose(run(), loss, 0, 0, /*equal_nan=*/true));
        EXPECT_TRUE(at::allclose(logits.grad(), first, 0, 0, /*equal_nan=*/true));
      }
    }
  }
}

TEST_P(CrossEntropy, LeavesTheLogitsWithoutAGradientToCompute) {
  const at::Tensor logits = at::randn({3, 64}, options());
  const at::Tensor before = logits.clone();
  const at::Tensor target = at::zeros({3}, at::TensorOptions(device()).dtype(at::kLong));
  const at::Tensor gradient = at::ones({}, options().dtype(at::kFloat));
  const at::Tensor loss = CrossEntropySum(logits, target, 64, 0, gradient);
  EXPECT_TRUE(at::allclose(loss, CrossEntropySumTwin(before, target, 64, 0), 1e-5, 1e-5));
  EXPECT_TRUE(at::equal(logits, before));
}

TEST_P(CrossEntropy, WritesAtAnOddAddressWhatIsItsOwn) {
  if (device() == at::kCPU) GTEST_SKIP() << "the twin writes over nothing";
  for (const bool beforehand : {false, true}) {
    const at::Tensor memory = at::ones({1 + 5 * 24 + 1}, options());
    at::Tensor logits = memory.narrow(0, 1, 5 * 24).view({5, 24}).requires_grad_();
    const at::Tensor target = at::zeros({5}, at::TensorOptions(device()).dtype(at::kLong));
    const at::Tensor gradient = at::ones({}, options().dtype(at::kFloat));
    CrossEntropySum(logits, target, 24, 0, beforehand ? gradient : at::Tensor()).backward(gradient);
    EXPECT_NEAR(logits.grad()[4][0].item<double>(), 1 / 24.0 - 1, 1e-2);
    EXPECT_NEAR(logits.grad()[4][23].item<double>(), 1 / 24.0, 1e-3);
    EXPECT_EQ(memory[0].item<double>(), 1);
    EXPECT_EQ(memory[-1].item<double>(), 1);
  }
}

TEST_P(CrossEntropy, TakesLogitsOfMinusInfinity) {
  at::Tensor logits = at::zeros({2, 96}, options());
  logits.narrow(1, 0, 64).fill_(-INFINITY);
  const at::Tensor target = at::full({2}, 80, at::TensorOptions(device()).dtype(at::kLong));
  const at::Tensor gradient = at::ones({}, options().dtype(at::kFloat));
  for (const bool beforehand : {false, true}) {
    at::Tensor leaf = logits.clone().requires_grad_();
    const at::Tensor loss =
        CrossEntropySum(leaf.clone(), target, 96, 0, beforehand ? gradient : at::Tensor());
    EXPECT_NEAR(loss.item<double>(), 2 * std::log(32.0), 1e-4);
    loss.backward(gradient);
    EXPECT_EQ(leaf.grad().narrow(1, 0, 64).abs().sum().item<double>(), 0);
    EXPECT_NEAR(leaf.grad()[1][95].item<double>(), 1 / 32.0, 1e-4);
  }
}

TEST_P(CrossEntropy, AnOperationThatKeptTheLogitsThrows) {
  if (device() == at::kCPU) GTEST_SKIP() << "the twin writes over nothing";
  for (const bool beforehand : {false, true}) {
    at::Tensor leaf = at::zeros({3, 64}, options()).requires_grad_();
    const at::Tensor target = at::zeros({3}, at::TensorOptions(device()).dtype(at::kLong));
    const at::Tensor gradient = at::ones({}, options().dtype(at::kFloat));
    const at::Tensor loss =
        CrossEntropySum(leaf.exp(), target, 64, 0, beforehand ? gradient : at::Tensor());
    EXPECT_THROW(loss.backward(gradient), c10::Error);
  }
}

TEST_P(CrossEntropy, SurvivesLargeLogitsAndAnOddAddress) {
  const at::Tensor memory = at::full({3 * 17 + 1}, dtype() == at::kHalf ? 6e4 : 1e30, options());
  const at::Tensor logits = memory.narrow(0, 1, 3 * 17).view({3, 17});
  const at::Tensor target = at::zeros({3}, at::TensorOptions(device()).dtype(at::kLong));
  const at::Tensor loss = CrossEntropySum(logits, target, 17, 0);
  EXPECT_NEAR(loss.item<double>(), 3 * std::log(17.0), 1e-3);
}

TEST_P(CrossEntropy, ATargetOutOfRangeIsNotANumber) {
  if (device() == at::kCPU) GTEST_SKIP() << "ATen throws on the CPU";
  for (const int64_t wrong : {int64_t{-1}, int64_t{30}, int64_t{1} << 40}) {
    const at::Tensor target =
        at::tensor(at::ArrayRef<int64_t>{29, wrong}, at::TensorOptions(at::kLong)).to(device());
    const at::Tensor gradient = at::ones({}, options().dtype(at::kFloat));
    for (const bool beforehand : {false, true}) {
      at::Tensor leaf = at::zeros({2, 32}, options()).requires_grad_();
      const at::Tensor loss =
          CrossEntropySum(leaf.clone(), target, 30, 0, beforehand ? gradient : at::Tensor());
      EXPECT_TRUE(std::isnan(loss.item<double>()));
      loss.backward(gradient);
      EXPECT_FALSE(leaf.grad()[0].isnan().any().item<bool>());
      EXPECT_TRUE(leaf.grad()[1].narrow(0, 0, 30).isnan().all().item<bool>());
      EXPECT_EQ(leaf.grad().narrow(1, 30, 2).abs().sum().item<double>(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CrossEntropy, EveryDeviceAndType(), DeviceAndType);

}  // namespace
}  // namespace lockstep::ops
