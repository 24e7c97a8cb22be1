// Tests that generated kernels give the same results as LibTorch's operations, with one kernel in forward and one in
// backward, and that the same memory is allocated on a simulated ("foretold") GPU (base/tensor/foretold_gpu.h).

#include "ops/generated/pointwise.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/scratch_folder.h"
#include "base/testing/test_files.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

at::Tensor Twin(const std::vector<at::Tensor>& inputs) {
  return at::silu(inputs[0]) * inputs[1] + 0.5 * inputs[2];
}

// Returns the function silu(x) * y + 0.5 z.
std::shared_ptr<const PointwiseFunction> Function() {
  Expressions to;
  const TermId x = to.Input(0);
  const TermId gated = to.Product(to.Product(x, to.Sigmoid(x)), to.Input(1));
  const TermId result = to.Sum(gated, to.Product(to.Constant(0.5), to.Input(2)));
  return std::make_shared<PointwiseFunction>(to, result, 3, Twin);
}

TEST(PointwiseText, ComputesEqualTermsOnceAndTakesWhatItReads) {
  Expressions to;
  const TermId x = to.Input(1);
  const TermId sum = to.Sum(to.Exp(x), to.Exp(x));
  EXPECT_EQ(to.InputsOf({sum}), std::vector<int64_t>{1});
  EXPECT_EQ(
      to.Text("f", {sum}),
      "template <typename T> void f(T x1, T& y0) {\n  const T v0 = x1;\n  const T v1 = exp(v0);\n"
      "  const T v2 = v1 + v1;\n  y0 = v2;\n}\n");
}

TEST(PointwiseText, GradientsReadOnlyWhatTheyDependOn) {
  const auto function = Function();
  const auto inputs_of = [&](size_t i) {
    return function->expressions().InputsOf({function->gradients()[i]});
  };
  // Input 3 is the gradient of the result.
  EXPECT_EQ(inputs_of(0), (std::vector<int64_t>{0, 1, 3}));
  EXPECT_EQ(inputs_of(1), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(inputs_of(2), std::vector<int64_t>{3});
}

TEST(PointwiseText, KnowsWhereAGradientIsTheResults) {
  Expressions to;
  const TermId scaled = to.Product(to.Input(0), to.Input(1));
  const TermId sum = to.Sum(scaled, to.Input(2));
  const PointwiseFunction function(to, sum, 3, {});
  EXPECT_FALSE(function.PassesGradient(0));
  EXPECT_TRUE(function.PassesGradient(2));
}

TEST(PointwiseOnMeta, MakesItsResultAndKeepsWhatBackwardReads) {
  const at::TensorOptions meta = at::device(at::kMeta);
  const std::vector<at::Tensor> inputs = {
      at::empty({4, 8}, meta.dtype(at::kBFloat16)).requires_grad_(),
      at::empty({8}, meta).requires_grad_(),
      at::empty({4, 8}, meta.dtype(at::kBFloat16)).requires_grad_()};
  ASSERT_TRUE(HasPointwiseKernel(*Function(), inputs));
  const at::Tensor y = Pointwise(Function(), inputs);
  EXPECT_EQ(y.sizes(), inputs[0].sizes());
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  y.backward(at::empty_like(y));
  for (const at::Tensor& input : inputs) {
    EXPECT_EQ(input.grad().sizes(), input.sizes());
    EXPECT_EQ(input.grad().scalar_type(), input.scalar_type());
  }
}

TEST(PointwiseOnMeta, HasNoKernelForOthers) {
  const auto has_kernel = [function = Function()](const at::Tensor& y, const at::Tensor& z) {
    const at::Tensor x = at::empty({3, 4}, at::device(at::kMeta)).requires_grad_();
    return HasPointwiseKernel(*function, {x, y, z});
  };
  const at::Tensor x = at::empty({3, 4}, at::device(at::kMeta));
  const at::Tensor row = at::empty({4}, x.options()).requires_grad_();
  EXPECT_TRUE(has_kernel(x, x));
  EXPECT_TRUE(has_kernel(row, x));
  EXPECT_TRUE(has_kernel(x, row));
  EXPECT_FALSE(has_kernel(row, row));
  EXPECT_FALSE(has_kernel(at::empty({3, 4}), x));
  EXPECT_FALSE(has_kernel(at::empty({}, x.options()), x));
  EXPECT_FALSE(has_kernel(at::empty({4}, x.options().dtype(at::kLong)), x));
}

class PointwiseTest : public OpTest {};

// Compares silu(x) * y + 0.5 z and its gradients with LibTorch's in float64. y is broadcast, and z has other strides
// than x.
TEST_P(PointwiseTest, IsLibTorchs) {
  const auto make = [&](at::IntArrayRef sizes, at::ScalarType type) {
    return at::randn(sizes, device()).to(type);
  };
  const std::vector<at::Tensor> own = {make({64, 3, 50}, dtype()), make({50}, at::kFloat),
                                       make({64, 50, 3}, dtype()).transpose(1, 2)};
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> exact;
  for (const at::Tensor& input : own) {
    inputs.push_back(input.detach().clone(at::MemoryFormat::Preserve).requires_grad_());
    exact.push_back(input.detach().to(at::kDouble).requires_grad_());
  }
  const at::Tensor y = Pointwise(Function(), inputs);
  const at::Tensor wanted = Twin(exact);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(y.to(at::kDouble), wanted, 1e-5, 1e-5));
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  wanted.backward(dy.to(at::kDouble));
  const double close = dtype() == at::kFloat ? 1e-4 : dtype() == at::kHalf ? 2e-3 : 1e-2;
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(inputs[i].grad().scalar_type(), inputs[i].scalar_type());
    EXPECT_TRUE(at::allclose(inputs[i].grad().to(at::kDouble), exact[i].grad(), close, close)) << i;
  }
}

TEST_P(PointwiseTest, GradientsHaveGradients) {
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(at::randn({8, 8}, device()).to(dtype()).requires_grad_());
  }
  const auto penalty = [&](const at::Tensor& y) {
    const auto gradients = torch::autograd::grad({y.to(at::kFloat).square().sum()}, inputs, {},
                                                 /*retain_graph=*/true, /*create_graph=*/true);
    return gradients[0].to(at::kFloat).square().sum() + gradients[2].to(at::kFloat).square().sum();
  };
  const auto found = torch::autograd::grad({penalty(Pointwise(Function(), inputs))}, inputs);
  const auto wanted = torch::autograd::grad({penalty(Twin(inputs))}, inputs);
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor difference = (found[i] - wanted[i]).to(at::kFloat).norm();
    EXPECT_LE(difference.item<float>(), 0.05F * wanted[i].to(at::kFloat).norm().item<float>()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, PointwiseTest,
                         testing::Combine(testing::Values(at::kCUDA),
                                          testing::Values(at::kFloat, at::kHalf, at::kBFloat16)),
                         DeviceAndType);

// Runs the case IsLibTorchs/GpuFloat of this program in a child process, with the cache folder `cache`. Returns the
// result of std::system(), which is 0 if the test passed.
int RunWithCache(const std::string& cache) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "env -u PYTORCH_KERNEL_CACHE_PATH -u USE_PYTORCH_KERNEL_CACHE XDG_CACHE_HOME='{}' "
      "'{}' --gtest_filter='*IsLibTorchs/GpuFloat' >'{}/said' 2>&1",
      cache, program, cache);
  return std::system(command.c_str());
}

TEST(PointwiseCache, CompilesAgainWhatWasCutShort) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  const ScratchFolder scratch;
  const std::string said = scratch.path() + "/said";
  ASSERT_EQ(RunWithCache(scratch.path()), 0) << ReadFile(said);
  for (const double kept : {0.0, 0.01, 0.5, 0.99}) {
    std::vector<std::pair<std::filesystem::path, uintmax_t>> whole;
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch.path() + "/lockstep/kernels")) {
      whole.emplace_back(entry.path(), entry.file_size());
      const auto bytes = static_cast<uintmax_t>(kept * static_cast<double>(entry.file_size()));
      std::filesystem::resize_file(entry.path(), bytes);
    }
    ASSERT_FALSE(whole.empty());
    EXPECT_EQ(RunWithCache(scratch.path()), 0) << kept << ": " << ReadFile(said);
    for (const auto& [path, bytes] : whole) EXPECT_EQ(std::filesystem::file_size(path), bytes);
  }
}

TEST(KernelFolderTest, IsOneThatOnlyTheUserCanWriteTo) {
  const ScratchFolder scratch;
  const std::string cache = scratch.path() + "/cache";
  const std::string folder = KernelFolder(cache);
  EXPECT_EQ(folder, cache + "/kernels");
  EXPECT_EQ(KernelFolder(cache), folder);
  chmod(folder.c_str(), 0777);
  EXPECT_EQ(KernelFolder(cache), "");
  std::filesystem::remove(folder);
  std::filesystem::create_symlink(scratch.path(), folder);
  EXPECT_EQ(KernelFolder(cache), "");
  EXPECT_EQ(KernelFolder(""), "");
  EXPECT_EQ(KernelFolder("/dev/null/no"), "");
}

}  // namespace
}  // namespace lockstep::ops
