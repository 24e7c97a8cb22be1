// Products against PyTorch's in float64, and what becomes of their plans.

#include "trainer/ops/matrix_product.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/test_files.h"
#include "trainer/ops/op_test.h"
#include "trainer/ops/product_search.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

constexpr char kDevice[] = "NVIDIA H200, 132 multiprocessors, cuBLASLt 130101";

// Keys and plans that `number` tells apart; microseconds as a file keeps them.
ProductKey Key(int64_t number) {
  return {.m = 8 * number,
          .n = 2304,
          .k = 768,
          .a_by_columns = number % 2 == 0,
          .a_stride = 768,
          .b_by_columns = number % 3 == 0,
          .b_stride = 2304,
          .to_stride = 4096,
          .input = number % 2 == 0 ? FloatType::kFloat16 : FloatType::kBFloat16,
          .output = number % 5 == 0 ? FloatType::kFloat32 : FloatType::kBFloat16,
          .adds = number % 3 == 1,
          .has_bias = number % 3 == 2};
}
ProductPlan Plan(uint64_t number) {
  return {.algorithm = {number, 0, ~uint64_t{0}, 3, 4, 5, 6, 0xfedcba9876543210},
          .workspace_bytes = 32 << 20,
          .us = 80.125,
          .first_us = 90.25};
}

std::optional<ProductPlan> Find(const ProductPlanFile& file, const ProductKey& key) {
  const PlansByKey plans = file.Read();
  const auto it = plans.find(key);
  return it == plans.end() ? std::nullopt : std::optional(it->second);
}

bool AnyIsUsable(const ProductPlan&) { return true; }

ProductPlan Keep(const ProductPlanFile& file, const ProductKey& key, const ProductPlan& plan,
                 const std::function<bool(const ProductPlan&)>& is_usable = AnyIsUsable) {
  return file.Keep(key, plan, is_usable).at(key);
}

TEST(ChooseCandidate, TakesOneThatIsAtLeastTwoPercentFaster) {
  EXPECT_EQ(ChooseCandidate({{100}, {98.5}, {99}}), 0u);
  EXPECT_EQ(ChooseCandidate({{100}, {97.5}, {97.9}}), 1u);
  EXPECT_EQ(ChooseCandidate({{100}, {97.5}, {90}}), 2u);
  EXPECT_EQ(ChooseCandidate({{100}}), 0u);
}

TEST(ChooseCandidate, GoesByMedians) {
  EXPECT_EQ(ChooseCandidate({{100, 100, 100}, {10, 110, 110}}), 0u);
  EXPECT_EQ(ChooseCandidate({{100, 10, 100}, {900, 90, 90}}), 1u);
}

TEST(ChooseCandidate, PassesOverWhatDidNotRun) {
  EXPECT_EQ(ChooseCandidate({{100}, {}, {50}}), 2u);
  EXPECT_EQ(ChooseCandidate({{}, {}, {50}}), 2u);
  EXPECT_ANY_THROW(ChooseCandidate({{}, {}}));
}

TEST(PlanLine, ComesBack) {
  for (int i = 1; i <= 30; ++i) {
    const std::string line = PlanLine(kDevice, Key(i), Plan(i));
    const std::optional<KeyedPlan> parsed = ParsePlanLine(kDevice, line);
    ASSERT_TRUE(parsed) << line;
    EXPECT_EQ(parsed->key, Key(i)) << line;
    EXPECT_EQ(parsed->plan, Plan(i)) << line;
  }
}

TEST(PlanLine, AnyOtherCharacterIsSeen) {
  const std::string line = PlanLine(kDevice, Key(1), Plan(1));
  for (size_t i = 0; i < line.size(); ++i) {
    std::string damaged = line;
    damaged[i] ^= 1;
    EXPECT_FALSE(ParsePlanLine(kDevice, damaged)) << damaged;
    EXPECT_FALSE(ParsePlanLine(kDevice, line.substr(0, i))) << i;
  }
  EXPECT_FALSE(ParsePlanLine(kDevice, line + " "));
  EXPECT_FALSE(ParsePlanLine(std::string(kDevice) + "2", line));
}

TEST(ProductPlanFile, GivesWhatWasKept) {
  const std::string folder = NewPath() + "/a/b";
  const ProductPlanFile file(folder, kDevice);
  EXPECT_FALSE(Find(file, Key(1)));
  EXPECT_EQ(Keep(file, Key(1), Plan(1)), Plan(1));
  EXPECT_EQ(Keep(file, Key(2), Plan(2)), Plan(2));
  const ProductPlanFile same(folder, kDevice);
  EXPECT_EQ(Find(same, Key(1)), Plan(1));
  EXPECT_EQ(Find(same, Key(2)), Plan(2));
  EXPECT_FALSE(Find(same, Key(3)));
}

TEST(ProductPlanFile, WhoComesSecondTakesTheFirstsPlan) {
  const std::string folder = NewFolder();
  const ProductPlanFile one(folder, kDevice);
  const ProductPlanFile other(folder, kDevice);
  Keep(one, Key(1), Plan(1));
  EXPECT_EQ(Keep(other, Key(1), Plan(2)), Plan(1));
  EXPECT_EQ(Find(one, Key(1)), Plan(1));
}

TEST(ProductPlanFile, WhoKeepsAPlanLearnsOfTheOthers) {
  const std::string folder = NewFolder();
  const ProductPlanFile one(folder, kDevice);
  const ProductPlanFile other(folder, kDevice);
  Keep(one, Key(1), Plan(1));
  const PlansByKey both{{Key(1), Plan(1)}, {Key(2), Plan(2)}};
  EXPECT_EQ(other.Keep(Key(2), Plan(2), AnyIsUsable), both);
  EXPECT_EQ(one.Keep(Key(2), Plan(3), AnyIsUsable), both);
}

TEST(ProductPlanFile, ReplacesWhatIsOfNoUse) {
  const ProductPlanFile file(NewFolder(), kDevice);
  Keep(file, Key(1), Plan(1));
  const auto is_usable = [](const ProductPlan& plan) { return plan != Plan(1); };
  EXPECT_EQ(Keep(file, Key(1), Plan(2), is_usable), Plan(2));
  EXPECT_EQ(Find(file, Key(1)), Plan(2));
}

TEST(ProductPlanFile, DropsBadLines) {
  const ProductPlanFile file(NewFolder(), kDevice);
  std::string damaged = PlanLine(kDevice, Key(2), Plan(2));
  damaged[60] = damaged[60] == '0' ? '1' : '0';
  const std::string good = PlanLine(kDevice, Key(4), Plan(4));
  WriteFile(file.path(), std::string("\n\0 what is this\n", 16) + damaged + '\n' +
                             PlanLine("NVIDIA A100", Key(3), Plan(3)) + '\n' + good + '\n' +
                             PlanLine(kDevice, Key(5), Plan(5)).substr(0, 100));
  EXPECT_FALSE(Find(file, Key(2)));
  EXPECT_FALSE(Find(file, Key(3)));
  EXPECT_EQ(Find(file, Key(4)), Plan(4));
  EXPECT_FALSE(Find(file, Key(5)));
  Keep(file, Key(6), Plan(6));
  EXPECT_EQ(ReadFile(file.path()), good + '\n' + PlanLine(kDevice, Key(6), Plan(6)) + '\n');
}

TEST(ProductPlanFile, EachDeviceHasItsOwn) {
  const std::string folder = NewFolder();
  const ProductPlanFile one(folder, kDevice);
  const ProductPlanFile other(folder,
                              "NVIDIA H100 80GB HBM3, 132 multiprocessors, cuBLASLt 130101");
  EXPECT_EQ(fs::path(one.path()).filename(),
            "products-NVIDIA-H200-132-multiprocessors-cuBLASLt-130101.txt");
  Keep(one, Key(1), Plan(1));
  Keep(other, Key(1), Plan(2));
  EXPECT_EQ(Find(one, Key(1)), Plan(1));
  EXPECT_EQ(Find(other, Key(1)), Plan(2));
  // As after a copy by hand.
  fs::copy_file(one.path(), other.path(), fs::copy_options::overwrite_existing);
  EXPECT_FALSE(Find(other, Key(1)));
}

TEST(ProductPlanFile, ManyWriteAtOnce) {
  constexpr int kThreads = 8;
  constexpr int kKeys = 10;
  const std::string folder = NewFolder();
  std::vector<ProductPlan> of_shared_key(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        const ProductPlanFile file(folder, kDevice);
        for (int i = 0; i < kKeys; ++i) {
          const int number = 1000 + thread * kKeys + i;
          Keep(file, Key(number), Plan(number));
        }
        of_shared_key[thread] = Keep(file, Key(1), Plan(thread));
      });
    }
  }
  const ProductPlanFile file(folder, kDevice);
  for (int number = 1000; number < 1000 + kThreads * kKeys; ++number) {
    EXPECT_EQ(Find(file, Key(number)), Plan(number)) << number;
  }
  for (const ProductPlan& plan : of_shared_key) EXPECT_EQ(Find(file, Key(1)), plan);
  // Nothing but the file and its lock stays.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

TEST(ProductPlanFile, GoesWithoutAFolder) {
  const ProductPlanFile none("", kDevice);
  EXPECT_EQ(Keep(none, Key(1), Plan(1)), Plan(1));
  EXPECT_FALSE(Find(none, Key(1)));
  // Nobody makes a folder there, not even root.
  const ProductPlanFile below_a_file(WriteTestFile("no-folder", "text") + "/folder", kDevice);
  EXPECT_EQ(Keep(below_a_file, Key(1), Plan(1)), Plan(1));
  EXPECT_FALSE(Find(below_a_file, Key(1)));
  const ProductPlanFile is_folder(NewFolder(), kDevice);
  fs::create_directory(is_folder.path());
  EXPECT_EQ(Keep(is_folder, Key(1), Plan(1)), Plan(1));
  EXPECT_FALSE(Find(is_folder, Key(1)));
}

TEST(ProductPlanFile, AFullDiskKeepsWhatWasThere) {
  const std::string folder = NewFolder();
  const ProductPlanFile file(folder, kDevice);
  Keep(file, Key(1), Plan(1));
  {
    const LimitedFileSize limit(300);
    EXPECT_EQ(Keep(file, Key(2), Plan(2)), Plan(2));
  }
  EXPECT_EQ(Find(file, Key(1)), Plan(1));
  EXPECT_FALSE(Find(file, Key(2)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2);
}

struct Sizes {
  int64_t m, n, k;
};

// As a matrix may lie, of any sizes.
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
  // Of sums that are rounded to `to`; at::mm may round float32 to TF32.
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
    // Twice, of which the second has its plan.
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
  // Those whose sizes are all multiples of 8.
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
    // Each was found by this planner and used again.
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

// On a GPU, a product that is planned.
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
  at::mm(a_, b_);  // makes the handle, which a capture may not
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
  // A file may be read during a capture.
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
