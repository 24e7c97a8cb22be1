// Tests that generated kernels give the same results as LibTorch's operations: their text on the CPU
// (ops/generated/testing/host_kernels.h), and the kernels themselves on the GPU. On a simulated ("foretold") GPU
// (base/tensor/foretold_gpu.h) they allocate the same memory.

#include "ops/generated/generated.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/scratch_folder.h"
#include "base/testing/test_files.h"
#include "ops/common/launch_arguments.h"
#include "ops/generated/testing/host_kernels.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

using Tensors = std::vector<at::Tensor>;
using Terms = std::vector<TermId>;

// A function of three inputs, with the sizes of its inputs.
struct FunctionCase {
  const char* name;
  std::vector<at::IntArrayRef::value_type> x, y, z;
  TermId (*term)(TensorTerms& to, const Terms& of);
  at::Tensor (*twin)(const Tensors& of);
};

TermId Silu(TensorTerms& to, TermId x) { return to.Product(x, to.Sigmoid(x)); }

const std::vector<FunctionCase>& Cases() {
  static const std::vector<FunctionCase> cases = {
      {"Pointwise",
       {12, 3, 40},
       {40},
       {12, 3, 40},
       [](TensorTerms& to, const Terms& of) {
         return to.Sum(to.Product(Silu(to, of[0]), of[1]), to.Product(to.Constant(0.5), of[2]));
       },
       [](const Tensors& of) { return at::silu(of[0]) * of[1] + 0.5 * of[2]; }},
      {"OddSizes",
       {5, 7, 3},
       {7, 1},
       {1, 7, 3},
       [](TensorTerms& to, const Terms& of) {
         return to.Quotient(to.Product(of[0], of[1]),
                            to.Sum(to.Product(of[2], of[2]), to.Constant(1)));
       },
       [](const Tensors& of) { return of[0] * of[1] / (of[2] * of[2] + 1); }},
      // ConvNeXt V2's response norm: a norm over the pixels of each channel, and its mean over the channels.
      {"ResponseNorm",
       {3, 6, 5, 16},
       {16},
       {16},
       [](TensorTerms& to, const Terms& of) {
         const TermId norm = to.Sqrt(to.SumOver(to.Product(of[0], of[0]), 0b110));
         const TermId share =
             to.Quotient(norm, to.Sum(to.MeanOver(norm, 0b1000), to.Constant(1e-6)));
         const TermId scaled = to.Product(of[0], share);
         return to.Sum(of[0], to.Sum(of[2], to.Product(of[1], scaled)));
       },
       [](const Tensors& of) {
         const at::Tensor norm = at::linalg_vector_norm(of[0], 2, at::IntArrayRef{1, 2}, true);
         const at::Tensor share = norm / (norm.mean(at::IntArrayRef{-1}, true) + 1e-6);
         return of[0] + at::addcmul(of[2], of[1], of[0] * share);
       }},
      {"RowsNorm",
       {300, 48},
       {48},
       {48},
       [](TensorTerms& to, const Terms& of) {
         const TermId apart = to.Difference(of[0], to.MeanOver(of[0], 0b10));
         const TermId scale =
             to.Sqrt(to.Sum(to.MeanOver(to.Product(apart, apart), 0b10), to.Constant(1e-5)));
         return to.Sum(to.Product(to.Quotient(apart, scale), of[1]), of[2]);
       },
       [](const Tensors& of) { return at::layer_norm(of[0], {48}, of[1], of[2]); }},
      {"Softmax",
       {4, 6, 33},
       {33},
       {4, 6, 1},
       [](TensorTerms& to, const Terms& of) {
         const TermId sum = to.Sum(of[0], of[1]);
         const TermId raised = to.Exp(to.Difference(sum, to.MaxOver(sum, 0b100)));
         return to.Product(to.Quotient(raised, to.SumOver(raised, 0b100)), of[2]);
       },
       [](const Tensors& of) { return at::softmax(of[0] + of[1], -1) * of[2]; }},
      // Groups of channels, whose statistics are put together from those of the channels.
      {"Groups",
       {4, 12, 4, 6},
       {12, 1, 1},
       {4, 12, 4, 6},
       [](TensorTerms& to, const Terms& of) {
         const TermId mean = to.MeanOver(to.Reshape(to.MeanOver(of[0], 0b1100), {4, 3, 4}), 0b100);
         const TermId all = to.Reshape(to.Expand(mean, {4, 3, 4}), {4, 12, 1, 1});
         return to.Sum(Silu(to, to.Product(to.Difference(of[0], all), of[1])), of[2]);
       },
       [](const Tensors& of) {
         const at::Tensor mean =
             of[0].reshape({4, 3, 4, 4, 6}).mean(at::IntArrayRef{2, 3, 4}, true);
         const at::Tensor all = mean.expand({4, 3, 4, 1, 1}).reshape({4, 12, 1, 1});
         return at::silu((of[0] - all) * of[1]) + of[2];
       }},
      // Few results of many elements, so that several blocks share each.
      {"FewLongRows",
       {4, 3000},
       {4, 1},
       {3000},
       [](TensorTerms& to, const Terms& of) {
         return to.Product(to.SumOver(to.Product(of[0], of[2]), 0b10), of[1]);
       },
       [](const Tensors& of) { return (of[0] * of[2]).sum(at::IntArrayRef{1}, true) * of[1]; }},
      {"FewLongColumns",
       {3000, 8},
       {8},
       {3000, 1},
       [](TensorTerms& to, const Terms& of) {
         return to.Product(to.SumOver(to.Product(of[0], of[2]), 0b01), of[1]);
       },
       [](const Tensors& of) { return (of[0] * of[2]).sum(at::IntArrayRef{0}, true) * of[1]; }},
      // Rotary positions: x cos + (-second half of x, first half of x) sin.
      {"Rotary",
       {2, 3, 5, 16},
       {5, 16},
       {5, 16},
       [](TensorTerms& to, const Terms& of) {
         const TermId second = to.Product(to.Constant(-1), to.Slice(of[0], 3, 8, 8));
         const TermId turned =
             to.Sum(to.Pad(second, 3, 0, 16), to.Pad(to.Slice(of[0], 3, 0, 8), 3, 8, 16));
         return to.Sum(to.Product(of[0], of[1]), to.Product(turned, of[2]));
       },
       [](const Tensors& of) {
         const at::Tensor turned = at::cat({-of[0].narrow(3, 8, 8), of[0].narrow(3, 0, 8)}, 3);
         return of[0] * of[1] + turned * of[2];
       }},
      // Pieces that begin within a group of lanes.
      {"OddPieces",
       {4, 24},
       {4, 5},
       {24},
       [](TensorTerms& to, const Terms& of) {
         const TermId joined =
             to.Sum(to.Pad(to.Slice(of[0], 1, 3, 19), 1, 0, 24), to.Pad(of[1], 1, 19, 24));
         return to.Product(joined, of[2]);
       },
       [](const Tensors& of) { return at::cat({of[0].narrow(1, 3, 19), of[1]}, 1) * of[2]; }},
      // The means of tiles of 2 x 2 pixels; the last column fills no tile.
      {"Tiles",
       {2, 8, 6, 9},
       {8, 1, 1},
       {2, 8, 3, 4},
       [](TensorTerms& to, const Terms& of) {
         const TermId sums = to.SumOfGroups(to.SumOfGroups(of[0], 2, 2), 3, 2);
         return to.Product(to.Sum(sums, of[2]), of[1]);
       },
       [](const Tensors& of) { return (4 * at::avg_pool2d(of[0], {2, 2}) + of[2]) * of[1]; }},
      // Images that are enlarged.
      {"Repeated",
       {2, 8, 3, 5},
       {8, 1, 1},
       {2, 8, 6, 10},
       [](TensorTerms& to, const Terms& of) {
         const TermId large = to.Repeat(to.Repeat(to.Product(of[0], of[1]), 2, 2), 3, 2);
         return to.Product(large, of[2]);
       },
       [](const Tensors& of) {
         return (of[0] * of[1]).repeat_interleave(2, 2).repeat_interleave(2, 3) * of[2];
       }},
      // Every third element, also put between zeros.
      {"SteppedPieces",
       {4, 24},
       {4, 8},
       {24},
       [](TensorTerms& to, const Terms& of) {
         const TermId apart = to.Pad(to.Sum(to.Slice(of[0], 1, 2, 8, 3), of[1]), 1, 1, 24, 3);
         return to.Product(apart, of[2]);
       },
       [](const Tensors& of) {
         const at::Tensor pieces = of[0].slice(1, 2, 24, 3) + of[1];
         const at::Tensor zeros = at::zeros_like(pieces);
         return at::stack({zeros, pieces, zeros}, 2).flatten(1) * of[2];
       }},
      {"First",
       {4, 5, 8},
       {8},
       {4, 5, 8},
       [](TensorTerms& to, const Terms& of) {
         return to.Product(to.Difference(of[0], to.FirstOver(of[0], 0b010)), to.Sum(of[1], of[2]));
       },
       [](const Tensors& of) {
         return (of[0] - of[0].narrow(1, 0, 1).detach()) * (of[1] + of[2]);
       }},
  };
  return cases;
}

BuildTerms BuildOf(const FunctionCase& of) {
  return [&of](TensorTerms& to, const Terms& inputs, const std::vector<at::ScalarType>& types,
               at::ScalarType) -> GeneratedResult {
    at::ScalarType type = types[0];
    for (const at::ScalarType more : types) type = at::promoteTypes(type, more);
    return {of.term(to, inputs), type};
  };
}

std::shared_ptr<const GeneratedFunction> FunctionOf(const FunctionCase& of) {
  return std::make_shared<const GeneratedFunction>(BuildOf(of), of.twin);
}

enum class Layout { kContiguous, kChannelsLast, kTransposed };

// Returns the inputs of a case, all positive and negative. The largest have the layout.
Tensors InputsOf(const FunctionCase& of, Layout layout, const std::vector<at::ScalarType>& types,
                 at::Device device = at::kCPU) {
  at::manual_seed(1);
  Tensors inputs;
  for (const auto& sizes : {of.x, of.y, of.z}) {
    at::Tensor input = at::randn(sizes, device).to(types[inputs.size() % types.size()]);
    if (input.dim() == 4 && layout == Layout::kChannelsLast) {
      input = input.contiguous(at::MemoryFormat::ChannelsLast);
    }
    if (input.dim() > 1 && layout == Layout::kTransposed) {
      input = input.transpose(-1, -2).contiguous().transpose(-1, -2);
    }
    inputs.push_back(input);
  }
  return inputs;
}

TensorLayout LayoutOf(const at::Tensor& tensor) {
  return {.type = ElementTypeOf(tensor.scalar_type()),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec()};
}

struct HostCase {
  size_t function;
  Layout layout;
  std::vector<at::ScalarType> types;
};

class OnHost : public testing::TestWithParam<HostCase> {};

TEST_P(OnHost, TextComputesWhatLibTorchDoes) {
  const FunctionCase& function = Cases()[GetParam().function];
  const Tensors inputs = InputsOf(function, GetParam().layout, GetParam().types);
  TensorTerms terms;
  PlanRequest request{.inputs = {}, .given = {}, .wanted = {}, .order = {}};
  Terms of;
  std::vector<at::ScalarType> types;
  Tensors exact;
  for (const at::Tensor& input : inputs) {
    of.push_back(terms.Input(static_cast<int64_t>(of.size()), input.sizes().vec()));
    request.inputs.push_back(LayoutOf(input));
    types.push_back(input.scalar_type());
    exact.push_back(input.to(at::kDouble).requires_grad_());
  }
  request.order = OrderOf(request.inputs);
  const GeneratedResult result = BuildOf(function)(terms, of, types, at::kFloat);
  request.wanted = {{.term = result.term,
                     .type = ElementTypeOf(result.type),
                     .sizes = terms.SizesOf(result.term)}};
  ASSERT_TRUE(CanPlan(terms, request));
  const KernelPlan forward = PlanOf(terms, request);
  const Tensors made = RunOnHost(forward, inputs);
  const at::Tensor& y = made[forward.results[0]];
  const at::Tensor wanted = function.twin(exact);
  ASSERT_EQ(y.sizes(), wanted.sizes());
  const double close = result.type == at::kFloat ? 2e-5 : result.type == at::kHalf ? 4e-3 : 2e-2;
  EXPECT_TRUE(IsNear(y, wanted.detach(), close));

  const at::Tensor dy = at::randn_like(y);
  of.push_back(terms.Input(3, dy.sizes().vec()));
  const Terms gradients = terms.Gradients(result.term, of[3], {of[0], of[1], of[2]});
  request.inputs.push_back(LayoutOf(dy));
  request.given = forward.sums;
  request.wanted.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_GE(gradients[i], 0);
    request.wanted.push_back({.term = gradients[i],
                              .type = ElementTypeOf(inputs[i].scalar_type()),
                              .sizes = inputs[i].sizes().vec()});
  }
  Tensors all = inputs;
  all.push_back(dy);
  for (const int tensor : forward.tensors_of_sums) all.push_back(made[tensor]);
  const KernelPlan backward = PlanOf(terms, request);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!backward.reads[i]) all[i] = at::Tensor();
  }
  const Tensors found = RunOnHost(backward, all);
  wanted.backward(dy.to(at::kDouble));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::ScalarType type = inputs[i].scalar_type();
    const double near = type == at::kFloat ? 1e-4 : type == at::kHalf ? 4e-3 : 2e-2;
    EXPECT_TRUE(
        IsNear(found[backward.results[i]].reshape(inputs[i].sizes()), exact[i].grad(), near))
        << i;
  }
}

std::vector<HostCase> HostCases() {
  std::vector<HostCase> cases;
  for (size_t i = 0; i < Cases().size(); ++i) {
    cases.push_back({i, Layout::kContiguous, {at::kFloat}});
    cases.push_back({i, Layout::kTransposed, {at::kBFloat16, at::kFloat}});
    if (Cases()[i].x.size() == 4) cases.push_back({i, Layout::kChannelsLast, {at::kHalf}});
  }
  return cases;
}

std::string NameOf(const testing::TestParamInfo<HostCase>& info) {
  const char* const layouts[] = {"Contiguous", "ChannelsLast", "Transposed"};
  return std::string(Cases()[info.param.function].name) +
         layouts[static_cast<int>(info.param.layout)];
}

INSTANTIATE_TEST_SUITE_P(, OnHost, testing::ValuesIn(HostCases()), NameOf);

// A choice by a bool that is expanded, with a bias that lies in another order than the result.
TEST(GeneratedText, ReadsBools) {
  at::manual_seed(1);
  const at::Tensor seen = (at::rand({3, 1, 1, 16}) < 0.5).expand({3, 1, 8, 16});
  const at::Tensor bias = at::randn({1, 8, 16, 4}).permute({0, 3, 1, 2});
  TensorTerms terms;
  const TermId of_seen = terms.Input(0, seen.sizes().vec());
  const TermId of_bias = terms.Input(1, bias.sizes().vec());
  const TermId result = terms.IfAtMost(of_seen, terms.Constant(0), terms.Constant(-7), of_bias);
  PlanRequest request{
      .inputs = {LayoutOf(seen), LayoutOf(bias)},
      .given = {},
      .wanted = {{.term = result, .type = ElementType::kBFloat16, .sizes = {3, 4, 8, 16}}},
      .order = {}};
  EXPECT_EQ(OrderOf(request.inputs), (std::vector<size_t>{0, 2, 3, 1}));
  const KernelPlan plan = PlanOf(terms, request);
  const std::vector<at::Tensor> made = RunOnHost(plan, {seen, bias});
  const at::Tensor& y = made[plan.results[0]];
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(at::equal(y, at::where(seen, bias, -7).to(at::kBFloat16)));

  const at::Tensor dy = at::randn(y.sizes()).to(at::kBFloat16);
  const TermId of_dy = terms.Input(2, dy.sizes().vec());
  request.inputs.push_back(LayoutOf(dy));
  request.wanted = {{.term = terms.Gradients(result, of_dy, {of_bias})[0],
                     .type = ElementType::kFloat32,
                     .sizes = bias.sizes().vec()}};
  const KernelPlan backward = PlanOf(terms, request);
  const std::vector<at::Tensor> found_all = RunOnHost(backward, {seen, at::Tensor(), dy});
  const at::Tensor& found = found_all[backward.results[0]];
  const at::Tensor wanted = at::where(seen, dy.to(at::kDouble), 0).sum(at::IntArrayRef{0}, true);
  EXPECT_TRUE(IsNear(found, wanted, 1e-5));
}

// Compiles the reductions' own text for the CPU, with one thread of the CPU for each of a block.
TEST(GeneratedText, ReducesOverThreads) {
  const std::string path = NewPath();
  WriteFile(path + ".cc", R"(
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>
#define __device__
#define __shared__ static
struct Place { int x, y; };
static thread_local Place threadIdx;
static thread_local int self;
static std::unique_ptr<std::barrier<>> block, warps[8];
static float slots[256];
inline void __syncthreads() { block->arrive_and_wait(); }
inline float __shfl_xor_sync(unsigned, float value, int other) {
  slots[self] = value;
  warps[self / 32]->arrive_and_wait();
  const float got = slots[self ^ other];
  warps[self / 32]->arrive_and_wait();
  return got;
}
inline float __int_as_float(int bits) { float value; memcpy(&value, &bits, 4); return value; }
)" + ReductionsText() + R"(
void Run(int x, int y, const std::function<void()>& kernel) {
  block = std::make_unique<std::barrier<>>(256);
  for (auto& warp : warps) warp = std::make_unique<std::barrier<>>(32);
  std::vector<std::thread> threads;
  for (int i = 0; i < 256; ++i) {
    threads.emplace_back([=] { self = i; threadIdx = {i % x, i / x}; kernel(); });
  }
  for (std::thread& thread : threads) thread.join();
}
int failures = 0;
float ValueOf(int x, int y) { return float((x * 37 + y * 101) % 64); }
template <int kThreads> void Rows() {
  Run(kThreads, 256 / kThreads, [] {
    const float sum = OverRow<Add, kThreads>(ValueOf(threadIdx.x, threadIdx.y));
    const float most = OverRow<Greatest, kThreads>(ValueOf(threadIdx.x, threadIdx.y));
    float wanted = 0, greatest = 0;
    for (int x = 0; x < kThreads; ++x) {
      wanted += ValueOf(x, threadIdx.y);
      greatest = fmaxf(greatest, ValueOf(x, threadIdx.y));
    }
    if (threadIdx.x == 0 && (sum != wanted || most != greatest)) failures = kThreads;
  });
}
template <int kX, int kCount> void Columns() {
  Run(kX, 256 / kX, [] {
    float values[kCount];
    for (int i = 0; i < kCount; ++i) values[i] = ValueOf(threadIdx.x * kCount + i, threadIdx.y);
    OverColumn<Add, kCount, kX, 256 / kX>(values);
    for (int i = 0; i < kCount && threadIdx.y == 0; ++i) {
      float wanted = 0;
      for (int y = 0; y < 256 / kX; ++y) wanted += ValueOf(threadIdx.x * kCount + i, y);
      if (values[i] != wanted) failures = 1000 + kX;
    }
  });
}
int main() {
  Rows<1>(); Rows<2>(); Rows<4>(); Rows<8>(); Rows<16>(); Rows<32>(); Rows<256>();
  Columns<4, 8>(); Columns<32, 4>(); Columns<16, 1>();
  printf("%d", failures);
}
)");
  const std::string command = fmt::format(
      "clang++ -std=c++20 -O1 -w -pthread '{0}.cc' -o '{0}.out' >'{0}.log' 2>&1 && '{0}.out' "
      ">'{0}.said'",
      path);
  ASSERT_EQ(std::system(command.c_str()), 0) << ReadFile(path + ".log");
  EXPECT_EQ(ReadFile(path + ".said"), "0");
}

// Short rows are shared by few threads, so that hardly any has nothing to add.
TEST(GeneratedPlan, ThreadsOfRows) {
  const auto block_of = [](int64_t size, ElementType type) {
    TensorTerms terms;
    const TermId x = terms.Input(0, {100, size});
    PlanRequest request{.inputs = {DenseLayout(type, {100, size}, {})},
                        .given = {},
                        .wanted = {{.term = terms.SumOver(x, 0b10),
                                    .type = ElementType::kFloat32,
                                    .sizes = {100, 1}}},
                        .order = {0, 1}};
    const PlannedKernel kernel = PlanOf(terms, request).kernels[0];
    EXPECT_EQ(kernel.block_x * kernel.block_y, 256);
    return kernel.block_x;
  };
  EXPECT_EQ(block_of(32, ElementType::kBFloat16), 2);  // 4 packs
  EXPECT_EQ(block_of(96, ElementType::kBFloat16), 4);  // 12 packs
  EXPECT_EQ(block_of(49, ElementType::kBFloat16), 8);  // 49 elements, 7 each
  EXPECT_EQ(block_of(768, ElementType::kBFloat16), 32);
  EXPECT_EQ(block_of(3, ElementType::kFloat32), 1);
  EXPECT_EQ(block_of(8192, ElementType::kFloat32), 256);
}

// Returns x times the factors of dropout, as the text computes them on the CPU.
at::Tensor DroppedOnHost(const at::Tensor& x, const at::Tensor& key, double drops, int64_t number) {
  TensorTerms terms;
  const TermId of_x = terms.Input(0, x.sizes().vec()), of_key = terms.Input(1, {2});
  const TermId result = terms.Product(of_x, terms.Keep(of_key, drops, number, x.sizes().vec()));
  PlanRequest request{
      .inputs = {LayoutOf(x), LayoutOf(key)}, .given = {}, .wanted = {}, .order = {}};
  request.order = OrderOf(request.inputs);
  request.wanted = {{.term = result, .type = ElementType::kFloat32, .sizes = x.sizes().vec()}};
  const KernelPlan plan = PlanOf(terms, request);
  return RunOnHost(plan, {x, key})[plan.results[0]];
}

// Dropout's factors depend on the key, the number and an element's place, but not on where it lies in memory.
TEST(GeneratedText, DropsTheSameInEachLayout) {
  const at::Tensor x = at::ones({6, 16, 10, 12});
  const at::Tensor key = at::tensor({12345.0F, 16777215.0F});
  const at::Tensor dropped = DroppedOnHost(x, key, 0.25, 7);
  EXPECT_TRUE(at::equal(dropped, (dropped > 0) * (1 / 0.75F)));
  const auto count = static_cast<double>(x.numel());
  const auto is_share = [&](const at::Tensor& are, double share) {
    const double off = are.to(at::kDouble).mean().item<double>() - share;
    return std::abs(off) < 5 * std::sqrt(share * (1 - share) / count);
  };
  EXPECT_TRUE(is_share(dropped == 0, 0.25));
  for (const at::Tensor& laid : {x.contiguous(at::MemoryFormat::ChannelsLast),
                                 x.transpose(2, 3).contiguous().transpose(2, 3),
                                 x.to(at::kBFloat16), at::ones({1, 16, 10, 1}).expand(x.sizes())}) {
    EXPECT_TRUE(at::equal(DroppedOnHost(laid, key, 0.25, 7), dropped));
  }
  // With another number or key, whether an element is dropped has nothing to do with whether it was.
  const at::Tensor other_key = at::tensor({12345.0F, 16777214.0F});
  for (const at::Tensor& other :
       {DroppedOnHost(x, key, 0.25, 8), DroppedOnHost(x, other_key, 0.25, 7)}) {
    EXPECT_TRUE(is_share((other == 0) & (dropped == 0), 0.25 * 0.25));
  }
  // Nor is it that of its neighbours.
  for (const int64_t dim : {1, 2, 3}) {
    EXPECT_TRUE(is_share((dropped.roll(1, dim) == 0) & (dropped == 0), 0.25 * 0.25));
  }
  EXPECT_TRUE(at::equal(DroppedOnHost(x, key, 0, 7), x));
}

TEST(GeneratedTerms, SumsOfTheSameValuesAreOneSum) {
  // The gradient of weights and that of the statistics need the sum of dy * x over the pixels; the weights' is summed
  // over the samples, too.
  TensorTerms to;
  const TermId x = to.Input(0, {4, 8, 5});
  const TermId weight = to.Input(1, {5});
  const TermId of_weight = to.SumOver(to.Product(x, weight), 0b010);
  EXPECT_EQ(to.At(of_weight).primitive, Primitive::kMultiply);
  EXPECT_EQ(of_weight, to.Product(weight, to.SumOver(x, 0b010)));
  const TermId over_all = to.SumOver(x, 0b011);
  EXPECT_EQ(over_all, to.SumOver(to.SumOver(x, 0b010), 0b001));
}

TEST(GeneratedPlan, KernelsOfANorm) {
  const FunctionCase& rows = Cases()[3];
  TensorTerms terms;
  PlanRequest request{.inputs = {}, .given = {}, .wanted = {}, .order = {}};
  Terms of;
  for (const auto& sizes : {rows.x, rows.y, rows.z}) {
    of.push_back(terms.Input(static_cast<int64_t>(of.size()), sizes));
    request.inputs.push_back(DenseLayout(ElementType::kFloat32, sizes, {}));
  }
  request.order = OrderOf(request.inputs);
  const TermId result = rows.term(terms, of);
  request.wanted = {{.term = result, .type = ElementType::kFloat32, .sizes = rows.x}};
  // The sums of the values, those of the squared differences to the mean, the scale of each row, and the result.
  EXPECT_EQ(PlanOf(terms, request).kernels.size(), 4);
}

// Checks that backward has kept what its kernels read, also if only one gradient is wanted, and for a gradient that is laid
// out in another way.
TEST(GeneratedOnMeta, MakesItsResultAndItsGradients) {
  const at::TensorOptions meta = at::device(at::kMeta);
  for (const FunctionCase& function : Cases()) {
    for (size_t wanted = 0; wanted < 4; ++wanted) {
      Tensors inputs;
      for (const auto& sizes : {function.x, function.y, function.z}) {
        const bool is_wanted = wanted == inputs.size() || wanted == 3;
        const at::ScalarType type = inputs.size() == 1 ? at::kFloat : at::kBFloat16;
        inputs.push_back(at::empty(sizes, meta.dtype(type)).requires_grad_(is_wanted));
      }
      const at::Tensor y = Generated(FunctionOf(function), inputs);
      EXPECT_EQ(y.scalar_type(), at::kFloat);
      y.sum().backward();
      for (const at::Tensor& input : inputs) {
        if (!input.requires_grad()) continue;
        EXPECT_EQ(input.grad().sizes(), input.sizes());
        EXPECT_EQ(input.grad().scalar_type(), input.scalar_type());
      }
    }
  }
}

TEST(GeneratedOnMeta, HasNoKernelsForOthers) {
  const auto has_kernels = [function = FunctionOf(Cases()[0])](const at::Tensor& y,
                                                               const at::Tensor& z) {
    const at::Tensor x = at::empty({3, 4}, at::device(at::kMeta));
    return function->Prepare({x, y, z}) != nullptr;
  };
  const at::Tensor x = at::empty({3, 4}, at::device(at::kMeta));
  EXPECT_TRUE(has_kernels(x, x));
  EXPECT_TRUE(has_kernels(at::empty({4}, x.options()), x));
  EXPECT_FALSE(has_kernels(at::empty({3, 4}), x));
  EXPECT_FALSE(has_kernels(at::empty({}, x.options()), x));
  EXPECT_FALSE(has_kernels(at::empty({4}, x.options().dtype(at::kLong)), x));
}

class GeneratedOnGpu : public OpTest {};

TEST_P(GeneratedOnGpu, IsLibTorchs) {
  for (const FunctionCase& function : Cases()) {
    for (const Layout layout : {Layout::kContiguous, Layout::kChannelsLast, Layout::kTransposed}) {
      const Tensors own = InputsOf(function, layout, {dtype(), at::kFloat}, device());
      Tensors inputs, exact;
      for (const at::Tensor& input : own) {
        inputs.push_back(input.detach().clone(at::MemoryFormat::Preserve).requires_grad_());
        exact.push_back(input.detach().to(at::kDouble).requires_grad_());
      }
      const at::Tensor y = Generated(FunctionOf(function), inputs);
      const at::Tensor wanted = function.twin(exact);
      EXPECT_EQ(y.scalar_type(), at::kFloat);
      EXPECT_TRUE(IsNear(y, wanted.detach(), 2e-5)) << function.name;
      const at::Tensor dy = at::randn_like(y);
      y.backward(dy);
      wanted.backward(dy.to(at::kDouble));
      const double close = dtype() == at::kFloat ? 1e-4 : dtype() == at::kHalf ? 4e-3 : 2e-2;
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(inputs[i].grad().scalar_type(), inputs[i].scalar_type());
        EXPECT_TRUE(IsNear(inputs[i].grad(), exact[i].grad(), close)) << function.name << i;
      }
      EXPECT_TRUE(at::equal(y, Generated(FunctionOf(function), inputs)));
    }
  }
}

// x * w with dropout, whose gradients are those of the elements that were kept.
TEST_P(GeneratedOnGpu, DropsTheSameInBackward) {
  constexpr double kDrops = 0.3;
  const auto function = std::make_shared<const GeneratedFunction>(
      [](TensorTerms& to, const Terms& of, const std::vector<at::ScalarType>& types,
         at::ScalarType) -> GeneratedResult {
        const TermId product = to.Product(of[0], of[1]);
        return {to.Product(product, to.Keep(of[2], kDrops, 5, to.SizesOf(product))), types[0]};
      },
      [](const Tensors& of) { return at::dropout(of[0] * of[1], kDrops, true); }, /*draws=*/true);
  const at::Tensor x = (at::rand({96, 1000}, device()) + 0.5).to(dtype()).requires_grad_();
  const at::Tensor weight = (at::rand({1000}, device()) + 0.5).to(dtype()).requires_grad_();
  at::manual_seed(4);
  const at::Tensor y = Generated(function, {x, weight});
  const at::Tensor keeps = (y != 0).to(at::kDouble) / (1 - kDrops);
  EXPECT_NEAR((y == 0).to(at::kDouble).mean().item<double>(), kDrops, 0.01);
  EXPECT_TRUE(IsNear(y, x.to(at::kDouble) * weight.to(at::kDouble) * keeps, 1e-2));
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  const at::Tensor kept = dy.to(at::kDouble) * keeps;
  EXPECT_TRUE(IsNear(x.grad(), kept * weight.to(at::kDouble), 1e-2));
  EXPECT_TRUE(IsNear(weight.grad(), (kept * x.to(at::kDouble)).sum(0), 1e-2));
  EXPECT_FALSE(at::equal(y, Generated(function, {x, weight})));
  at::manual_seed(4);
  EXPECT_TRUE(at::equal(y, Generated(function, {x, weight})));
  EXPECT_THROW(torch::autograd::grad({Generated(function, {x, weight}).sum()}, {x}, {}, true,
                                     /*create_graph=*/true),
               c10::Error);
}

TEST_P(GeneratedOnGpu, GradientsHaveGradients) {
  const FunctionCase& function = Cases()[0];
  Tensors inputs;
  for (const auto& sizes : {function.x, function.y, function.z}) {
    inputs.push_back(at::randn(sizes, device()).to(dtype()).requires_grad_());
  }
  const auto penalty = [&](const at::Tensor& y) {
    const auto gradients = torch::autograd::grad({y.to(at::kFloat).square().sum()}, inputs, {},
                                                 /*retain_graph=*/true, /*create_graph=*/true);
    return gradients[0].to(at::kFloat).square().sum() + gradients[2].to(at::kFloat).square().sum();
  };
  const auto found =
      torch::autograd::grad({penalty(Generated(FunctionOf(function), inputs))}, inputs);
  const auto wanted = torch::autograd::grad({penalty(function.twin(inputs))}, inputs);
  for (size_t i = 0; i < found.size(); ++i) {
    const at::Tensor difference = (found[i] - wanted[i]).to(at::kFloat).norm();
    EXPECT_LE(difference.item<float>(), 0.05F * wanted[i].to(at::kFloat).norm().item<float>()) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, GeneratedOnGpu,
                         testing::Combine(testing::Values(at::kCUDA),
                                          testing::Values(at::kFloat, at::kHalf, at::kBFloat16)),
                         DeviceAndType);

// Runs the case IsLibTorchs/GpuFloat of this program in a child process, with the cache folder `cache`. Returns the
// result of std::system(), which is 0 if the test passed.
int RunWithCache(const std::string& cache) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "env XDG_CACHE_HOME='{}' '{}' --gtest_filter='*GeneratedOnGpu.IsLibTorchs/GpuFloat' "
      ">'{}/said' 2>&1",
      cache, program, cache);
  return std::system(command.c_str());
}

TEST(GeneratedCache, CompilesAgainWhatWasCutShort) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  const ScratchFolder scratch;
  const std::string said = scratch.path() + "/said";
  ASSERT_EQ(RunWithCache(scratch.path()), 0) << ReadFile(said);
  for (const double kept : {0.0, 0.5, 0.99}) {
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

}  // namespace
}  // namespace lockstep::ops
