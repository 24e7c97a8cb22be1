// Compares matrix products with PyTorch's in float64, and tests how their plans are searched for and kept.

#include "ops/product/matrix_product.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/test_files.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

struct Sizes {
  int64_t m, n, k;
};

// The memory layouts that Random() can give to a matrix.
enum class Lies { kByRows, kByColumns, kInWiderRows, kMisaligned };
constexpr Lies kEveryWay[] = {Lies::kByRows, Lies::kByColumns, Lies::kInWiderRows,
                              Lies::kMisaligned};

at::Tensor Random(int64_t rows, int64_t columns, Lies lies, const at::TensorOptions& options) {
  switch (lies) {
    case Lies::kByColumns:
      return at::randn({columns, rows}, options).t();
    case Lies::kInWiderRows:
      return at::randn({rows, columns + 16}, options).slice(1, 8, 8 + columns);
    case Lies::kMisaligned:
      return at::randn({rows * columns + 1}, options).slice(0, 1).view({rows, columns});
    default:
      return at::randn({rows, columns}, options);
  }
}

class MatrixProductTest : public OpTest {
 protected:
  // Returns the tolerance for sums that are rounded to `to`. at::mm may round float32 factors to TF32.
  double Tolerance(at::ScalarType to) const {
    if (to == at::kFloat) return device() == at::kCUDA && dtype() == at::kFloat ? 2e-3 : 1e-5;
    return to == at::kHalf ? 1e-3 : 8e-3;
  }

  void ExpectProduct(ProductPlanner& planner, const Sizes& sizes, Lies a_lies, Lies b_lies,
                     Lies to_lies, at::ScalarType to_type, bool adds, bool has_bias) {
    SCOPED_TRACE(testing::Message()
                 << sizes.m << "x" << sizes.n << "x" << sizes.k << ", a "
                 << static_cast<int>(a_lies) << ", b " << static_cast<int>(b_lies) << ", to "
                 << static_cast<int>(to_lies) << " " << to_type << ", adds " << adds << ", bias "
                 << has_bias);
    const at::Tensor a = Random(sizes.m, sizes.k, a_lies, options());
    const at::Tensor b = Random(sizes.k, sizes.n, b_lies, options());
    const at::Tensor to = Random(sizes.m, sizes.n, to_lies, options(to_type));
    ProductOptions product{.adds = adds};
    at::Tensor expected = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    if (adds) expected += to.to(at::kDouble);
    if (has_bias) {
      product.bias = at::randn({sizes.n}, options(to_type));
      expected += product.bias.to(at::kDouble);
    }
    // The product runs twice; the second run uses the plan that the first run has chosen.
    const at::Tensor before = to.clone();
    for (int i = 0; i < 2; ++i) {
      to.copy_(before);
      planner.Multiply(to, a, b, product);
      EXPECT_TRUE(IsNear(to, expected, Tolerance(to_type)));
    }
  }
};

TEST_P(MatrixProductTest, IsTheProductOfEverySize) {
  ProductPlanner planner(NewFolder());
  for (const Sizes& sizes : {Sizes{1, 1, 1},
                             {1, 8, 7},
                             {7, 24, 8},
                             {8, 8, 8},
                             {24, 8, 768},
                             {333, 24, 8},
                             {24, 333, 24},
                             {8, 768, 333},
                             {768, 24, 3072},
                             {3072, 8, 24},
                             {1, 768, 768},
                             {333, 1, 7}}) {
    ExpectProduct(planner, sizes, Lies::kByRows, Lies::kByRows, Lies::kByRows, dtype(),
                  /*adds=*/false, /*has_bias=*/false);
    ExpectProduct(planner, sizes, Lies::kByRows, Lies::kByColumns, Lies::kByRows, dtype(),
                  /*adds=*/false, /*has_bias=*/true);
    ExpectProduct(planner, sizes, Lies::kByColumns, Lies::kByRows, Lies::kByRows, at::kFloat,
                  /*adds=*/true, /*has_bias=*/false);
  }
  // Only the products whose sizes are all multiples of 8 have plans: four of the sizes, with three products each.
  EXPECT_EQ(planner.Plans().size(), Is16BitOnGpu() ? 4 * 3 : 0u);
}

TEST_P(MatrixProductTest, IsTheProductHoweverTheMatricesLie) {
  ProductPlanner planner(NewFolder());
  const Sizes sizes{64, 24, 40};
  for (const Lies a : kEveryWay) {
    for (const Lies b : kEveryWay) {
      for (const Lies to : kEveryWay) {
        ExpectProduct(planner, sizes, a, b, to, dtype(), /*adds=*/a == b, /*has_bias=*/a != b);
        ExpectProduct(planner, sizes, a, b, to, at::kFloat, /*adds=*/b == to, /*has_bias=*/false);
      }
    }
  }
  for (const ProductPlanReport& report : planner.Plans()) {
    // Checks that a search of this planner found each plan, and that the plan is not slower than the first plan.
    EXPECT_EQ(report.source, PlanSource::kSearched) << Description(report.key);
    EXPECT_GT(report.plan.us, 0);
    EXPECT_LE(report.plan.us, report.plan.first_us) << Description(report.key);
  }
  EXPECT_EQ(planner.Plans().empty(), !Is16BitOnGpu());
}

TEST_P(MatrixProductTest, IsTheProductOfGreatMatrices) {
  if (device() == at::kCPU) GTEST_SKIP() << "takes a CPU minutes";
  ProductPlanner planner(NewFolder());
  ExpectProduct(planner, {3072, 768, 3072}, Lies::kByRows, Lies::kByRows, Lies::kByRows, dtype(),
                /*adds=*/false, /*has_bias=*/true);
  ExpectProduct(planner, {768, 3072, 3072}, Lies::kByColumns, Lies::kByRows, Lies::kByRows,
                at::kFloat, /*adds=*/true, /*has_bias=*/false);
}

TEST_P(MatrixProductTest, OfNothing) {
  ProductPlanner planner(NewFolder());
  const at::Tensor to = at::ones({8, 16}, options());
  planner.Multiply(to, at::ones({8, 0}, options()), at::ones({0, 16}, options()), {.adds = true});
  EXPECT_TRUE(at::equal(to, at::ones_like(to)));
  planner.Multiply(to, at::ones({8, 0}, options()), at::ones({0, 16}, options()));
  EXPECT_TRUE(at::equal(to, at::zeros_like(to)));
  const at::Tensor none = at::ones({0, 16}, options());
  planner.Multiply(none, at::ones({0, 8}, options()), at::ones({8, 16}, options()));
  EXPECT_TRUE(planner.Plans().empty());
}

INSTANTIATE_TEST_SUITE_P(, MatrixProductTest, EveryDeviceAndType(), DeviceAndType);

TEST(MatrixProduct, SaysWhatDoesNotFit) {
  const at::Tensor a = at::ones({8, 16});
  const at::Tensor b = at::ones({16, 24});
  const at::Tensor to = at::empty({8, 24});
  EXPECT_NO_THROW(MatrixProduct(to, a, b));
  EXPECT_THROW(MatrixProduct(to, b, a), c10::Error);
  EXPECT_THROW(MatrixProduct(to.t(), a, b), c10::Error);
  EXPECT_THROW(MatrixProduct(to, a, b.to(at::kHalf)), c10::Error);
  EXPECT_THROW(MatrixProduct(to.to(at::kHalf), a, b), c10::Error);
  EXPECT_THROW(MatrixProduct(to, a, b, {.bias = at::ones({8})}), c10::Error);
  EXPECT_THROW(MatrixProduct(to, a, b, {.bias = at::ones({24}, at::kHalf)}), c10::Error);
  EXPECT_THROW(MatrixProduct(to, a, b, {.adds = true, .bias = at::ones({24})}), c10::Error);
  EXPECT_THROW(MatrixProduct(b, a, at::kFloat), c10::Error);
  EXPECT_THROW(MatrixProduct(a, b, at::kHalf), c10::Error);
}

TEST(MatrixProduct, OfATypeIsANewMatrix) {
  const at::Tensor a = at::randn({8, 16}, at::kBFloat16);
  const at::Tensor b = at::randn({24, 16}, at::kBFloat16).t();
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const at::Tensor to = at::empty({8, 24}, type);
    MatrixProduct(to, a, b);
    const at::Tensor product = MatrixProduct(a, b, type);
    EXPECT_EQ(product.scalar_type(), type);
    EXPECT_TRUE(product.is_contiguous());
    EXPECT_TRUE(at::equal(product, to));
  }
}

// Tests the planner with a product that has a plan, on a GPU.
class ProductPlannerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
    at::manual_seed(1);
    const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    a_ = at::randn({512, 256}, options);
    b_ = at::randn({256, 768}, options);
    to_ = at::empty({512, 768}, options);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

  PlanSource SourceOf(const ProductPlanner& planner) const {
    EXPECT_EQ(planner.Plans().size(), 1u);
    return planner.Plans()[0].source;
  }
  at::Tensor Product(ProductPlanner& planner, const ProductOptions& options = {}) const {
    planner.Multiply(to_, a_, b_, options);
    return to_.clone();
  }

  std::string folder_ = NewFolder();
  at::Tensor a_, b_, to_;
};

TEST_F(ProductPlannerTest, TheNextProcessNeedNotSearch) {
  ProductPlanner one(folder_);
  const at::Tensor expected = Product(one);
  EXPECT_EQ(SourceOf(one), PlanSource::kSearched);
  ProductPlanner other(folder_);
  EXPECT_TRUE(at::equal(Product(other), expected));
  EXPECT_EQ(SourceOf(other), PlanSource::kFile);
  EXPECT_EQ(other.Plans()[0].plan.algorithm, one.Plans()[0].plan.algorithm);
}

TEST_F(ProductPlannerTest, SearchesAgainWhereTheFileIsDamaged) {
  ProductPlanner one(folder_);
  Product(one);
  for (const auto& entry : fs::directory_iterator(folder_)) WriteFile(entry.path(), "what is this");
  ProductPlanner other(folder_);
  Product(other);
  EXPECT_EQ(SourceOf(other), PlanSource::kSearched);
  ProductPlanner third(folder_);
  Product(third);
  EXPECT_EQ(SourceOf(third), PlanSource::kFile);
}

TEST_F(ProductPlannerTest, SearchesWhereNothingCanBeKept) {
  ProductPlanner planner("");
  const at::Tensor expected = at::mm(a_.to(at::kDouble), b_.to(at::kDouble));
  EXPECT_TRUE(IsNear(Product(planner), expected, 8e-3));
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
}

TEST_F(ProductPlannerTest, DoesNotSearchWhereItIsNotWanted) {
  ProductPlanner planner(folder_);
  Product(planner, {.searches = false});
  EXPECT_EQ(SourceOf(planner), PlanSource::kFirst);
  EXPECT_TRUE(fs::is_empty(folder_));
  Product(planner);
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
  ProductPlanner other(folder_);
  Product(other, {.searches = false});
  EXPECT_EQ(SourceOf(other), PlanSource::kFile);
}

TEST_F(ProductPlannerTest, DeterministicAlgorithmsAreNotSearchedFor) {
  ProductPlanner first(folder_);
  const at::Tensor expected = Product(first, {.searches = false});
  ProductPlanner searched(folder_);
  Product(searched);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  for (int i = 0; i < 2; ++i) {
    ProductPlanner planner(folder_);
    EXPECT_TRUE(at::equal(Product(planner), expected));
    EXPECT_EQ(SourceOf(planner), PlanSource::kFirst);
  }
  EXPECT_TRUE(at::equal(Product(searched), expected));
}

TEST_F(ProductPlannerTest, CanBeCaptured) {
  c10::cuda::device_synchronize();  // the matrices were made on another stream
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const at::Tensor expected = at::mm(a_.to(at::kDouble), b_.to(at::kDouble));
  at::mm(a_, b_);  // creates cuBLAS's handle, which is not allowed during a capture
  const auto capture = [&](ProductPlanner& planner) {
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    planner.Multiply(to_, a_, b_);
    graph.capture_end();
    to_.zero_();
    graph.replay();
    EXPECT_TRUE(IsNear(to_, expected, 8e-3));
  };
  ProductPlanner planner(folder_);
  capture(planner);
  EXPECT_EQ(SourceOf(planner), PlanSource::kFirst);
  EXPECT_TRUE(fs::is_empty(folder_));
  Product(planner);
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
  capture(planner);
  // Checks that a plan file may be read during a capture.
  ProductPlanner other(folder_);
  capture(other);
  EXPECT_EQ(SourceOf(other), PlanSource::kFile);
}

TEST_F(ProductPlannerTest, ThreadsShareThePlans) {
  ProductPlanner planner(folder_);
  const at::Tensor expected = Product(planner);
  std::vector<at::Tensor> products(4);
  {
    std::vector<std::jthread> threads;
    for (at::Tensor& product : products) {
      product = at::empty_like(to_);
      threads.emplace_back([&] { planner.Multiply(product, a_, b_); });
    }
  }
  for (const at::Tensor& product : products) EXPECT_TRUE(at::equal(product, expected));
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
}

}  // namespace
}  // namespace lockstep::ops
