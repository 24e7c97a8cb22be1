// Compares each pass with ATen's convolution (on a GPU, in float64), and tests how plans are chosen and kept.

#include "ops/convolution/convolution_planner.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/testing/test_files.h"
#include "ops/plan/plan_file.h"
#include "ops/testing/convolution_op_test.h"
#include "ops/testing/op_test.h"

namespace lockstep::ops {
namespace {

namespace fs = std::filesystem;

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Case {
  int64_t count, inputs, height, width, outputs, size, stride, padding;
};

// The results of forward, of the input gradient and of the weight gradient.
using Passes = std::array<at::Tensor, 3>;

Passes PlannedPasses(ConvolutionPlanner& planner, const ConvolutionTensors& of,
                     const ConvolutionOptions& options) {
  return {planner.Forward(of.x, of.weight, options),
          planner.InputGradient(of.y, of.x, of.weight, options),
          planner.WeightGradient(of.y, of.x, of.weight, options)};
}

Passes AtenPasses(const ConvolutionTensors& of, const ConvolutionOptions& options) {
  const int64_t stride = options.stride;
  const int64_t padding = options.padding;
  const auto [dx, d_weight, d_bias] = at::convolution_backward(
      of.y, of.x, of.weight, /*bias_sizes=*/{}, {stride, stride}, {padding, padding},
      /*dilation=*/{1, 1}, /*transposed=*/false, /*output_padding=*/{0, 0}, /*groups=*/1,
      {true, true, false});
  return {at::conv2d(of.x, of.weight, /*bias=*/{}, stride, padding), dx, d_weight};
}

class ConvolutionPlannerOpTest : public ConvolutionOpTest {
 protected:
  ConvolutionTensors Random(const Case& of) const {
    const auto output = [&](int64_t side) {
      return (side + 2 * of.padding - of.size) / of.stride + 1;
    };
    // The third tensor is used as y's gradient. The weights are scaled so that the values of the output are about 1.
    const double scale = 1 / std::sqrt(static_cast<double>(of.inputs * of.size * of.size));
    return {Images({of.count, of.inputs, of.height, of.width}),
            Images({of.outputs, of.inputs, of.size, of.size}) * scale,
            Images({of.count, of.outputs, output(of.height), output(of.width)})};
  }

  void ExpectConvolution(ConvolutionPlanner& planner, const ConvolutionTensors& of,
                         const ConvolutionOptions& options) {
    SCOPED_TRACE(testing::Message() << of.x.sizes() << " by " << of.weight.sizes() << ", stride "
                                    << options.stride << ", padding " << options.padding);
    // On a CPU the planner calls ATen, whose error in 16 bits depends on the processor, so the reference is ATen in the
    // same type.
    const at::ScalarType exact = device() == at::kCPU ? dtype() : at::kDouble;
    const Passes expected =
        AtenPasses({of.x.to(exact), of.weight.to(exact), of.y.to(exact)}, options);
    // The passes run twice; the second run uses the plans that the first run has chosen.
    for (int i = 0; i < 2; ++i) {
      const Passes passes = PlannedPasses(planner, of, options);
      for (size_t pass = 0; pass < passes.size(); ++pass) {
        EXPECT_EQ(passes[pass].scalar_type(), dtype());
        EXPECT_TRUE(IsNear(passes[pass], expected[pass], tolerance())) << "pass " << pass;
      }
    }
  }
};

TEST_P(ConvolutionPlannerOpTest, IsTheConvolutionOfEverySize) {
  ConvolutionPlanner planner(NewFolder());
  const std::vector<Case> planned = {
      {1, 8, 1, 1, 8, 1, 1, 0},   {7, 24, 9, 5, 8, 1, 2, 0},    {7, 8, 5, 7, 24, 3, 1, 1},
      {7, 24, 9, 8, 40, 3, 2, 1}, {1, 2048, 3, 2, 8, 3, 1, 1},  {2, 8, 4, 4, 2048, 1, 2, 0},
      {333, 8, 4, 4, 8, 3, 1, 0}, {2, 16, 12, 11, 64, 7, 2, 3}, {3, 16, 8, 8, 64, 4, 1, 0}};
  for (const Case& of : planned) {
    ExpectConvolution(planner, Random(of), {.stride = of.stride, .padding = of.padding});
  }
  const size_t plans = planner.Plans().size();
  if (Is16BitOnGpu()) {
    // There are at most three plans, one for each pass, for each case. cuDNN may have no engines for some of the passes
    // on this GPU.
    EXPECT_GT(plans, 0u);
    EXPECT_LE(plans, 3 * planned.size());
  } else {
    EXPECT_EQ(plans, 0u);
  }
  for (const Case& of : {Case{3, 3, 9, 9, 8, 3, 1, 1}, Case{3, 8, 9, 9, 5, 3, 2, 1},
                         Case{1, 7, 5, 5, 9, 1, 1, 0}, Case{333, 12, 3, 3, 8, 3, 1, 1}}) {
    ExpectConvolution(planner, Random(of), {.stride = of.stride, .padding = of.padding});
  }
  EXPECT_EQ(planner.Plans().size(), plans);
}

TEST_P(ConvolutionPlannerOpTest, IsTheConvolutionHoweverTensorsLie) {
  ConvolutionPlanner planner(NewFolder());
  const ConvolutionOptions options{.stride = 1, .padding = 1};
  const ConvolutionTensors good = Random({4, 16, 6, 5, 24, 3, 1, 1});
  const auto misaligned = [](const at::Tensor& images) {
    const at::Tensor memory = at::empty({images.numel() + 1}, images.options());
    const at::Tensor view =
        memory.slice(0, 1).as_strided(images.sizes(), images.strides(), /*storage_offset=*/1);
    return view.copy_(images);
  };
  const auto in_wider_pixels = [](const at::Tensor& images) {
    return at::cat({images, images}, /*dim=*/1).contiguous(kLast).narrow(1, 0, images.size(1));
  };
  const auto channels_first = [](const at::Tensor& images) { return images.contiguous(); };
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> ways{misaligned, in_wider_pixels,
                                                                       channels_first};
  for (const auto& lay : ways) {
    ConvolutionTensors all = good;
    for (at::Tensor ConvolutionTensors::*const tensor :
         {&ConvolutionTensors::x, &ConvolutionTensors::weight, &ConvolutionTensors::y}) {
      ConvolutionTensors one = good;
      one.*tensor = lay(good.*tensor);
      all.*tensor = one.*tensor;
      ExpectConvolution(planner, one, options);
    }
    ExpectConvolution(planner, all, options);
  }
  if (Is16BitOnGpu()) {
    for (const at::Tensor& made : PlannedPasses(planner, good, options)) {
      EXPECT_TRUE(made.is_contiguous(kLast));
    }
  }
}

TEST_P(ConvolutionPlannerOpTest, OfNothing) {
  ConvolutionPlanner planner(NewFolder());
  const at::Tensor x = at::ones({0, 8, 5, 5}, options());
  const at::Tensor weight = at::ones({16, 8, 3, 3}, options());
  const at::Tensor y = planner.Forward(x, weight, {.padding = 1});
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 16, 5, 5}));
  EXPECT_EQ(planner.InputGradient(y, x, weight, {.padding = 1}).sizes(), x.sizes());
  EXPECT_TRUE(
      at::equal(planner.WeightGradient(y, x, weight, {.padding = 1}), at::zeros_like(weight)));
  EXPECT_TRUE(planner.Plans().empty());
}

INSTANTIATE_TEST_SUITE_P(, ConvolutionPlannerOpTest, EveryDeviceAndType(), DeviceAndType);

TEST(ConvolutionPlanner, SaysWhatDoesNotFit) {
  const at::Tensor x = at::ones({2, 8, 5, 5});
  const at::Tensor weight = at::ones({16, 8, 3, 3});
  const at::Tensor y = PlannedConvolution(x, weight);
  EXPECT_NO_THROW(PlannedConvolutionInputGradient(y, x, weight));
  EXPECT_NO_THROW(PlannedConvolutionWeightGradient(y, x, weight));
  EXPECT_THROW(PlannedConvolution(x, y), c10::Error);
  EXPECT_THROW(PlannedConvolution(x, at::ones({16, 8, 7, 7})), c10::Error);
  EXPECT_THROW(PlannedConvolution(x, weight.to(at::kHalf)), c10::Error);
  EXPECT_THROW(PlannedConvolution(x, weight, {.stride = 0}), c10::Error);
  EXPECT_THROW(PlannedConvolution(x, weight, {.padding = -1}), c10::Error);
  // oneDNN throws this exception.
  EXPECT_ANY_THROW(PlannedConvolutionInputGradient(x, x, weight));
}

// Tests the planner with a convolution that has a plan, on a GPU.
class ConvolutionPlannerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
    at::manual_seed(1);
    const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    const auto images = [&](at::IntArrayRef sizes) {
      return at::randn(sizes, options).contiguous(kLast);
    };
    of_ = {images({16, 64, 28, 28}), images({128, 64, 3, 3}), images({16, 128, 28, 28})};
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

  // Returns the source of the plans of the three passes, which must have the same source.
  static PlanSource SourceOf(const ConvolutionPlanner& planner) {
    const std::vector<ConvolutionPlanReport> plans = planner.Plans();
    EXPECT_EQ(plans.size(), 3u);
    for (const ConvolutionPlanReport& report : plans) {
      EXPECT_EQ(report.source, plans.at(0).source) << Description(report.key);
    }
    return plans.at(0).source;
  }
  Passes Run(ConvolutionPlanner& planner, bool searches = true) const {
    return PlannedPasses(planner, of_, {.padding = 1, .searches = searches});
  }
  static void ExpectEqual(const Passes& passes, const Passes& expected) {
    for (size_t i = 0; i < passes.size(); ++i) {
      EXPECT_TRUE(at::equal(passes[i], expected[i])) << i;
    }
  }
  void ExpectNear(const Passes& passes) const {
    const Passes expected = AtenPasses(
        {of_.x.to(at::kDouble), of_.weight.to(at::kDouble), of_.y.to(at::kDouble)}, {.padding = 1});
    for (size_t i = 0; i < passes.size(); ++i) {
      EXPECT_TRUE(IsNear(passes[i], expected[i], 8e-3)) << i;
    }
  }
  // Returns the path of the plan file in the folder.
  fs::path File() const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".txt") return entry.path();
    }
    ADD_FAILURE() << "no file";
    return {};
  }

  std::string folder_ = NewFolder();
  ConvolutionTensors of_;
};

TEST_F(ConvolutionPlannerTest, TheNextProcessNeedNotSearch) {
  ConvolutionPlanner one(folder_);
  const Passes expected = Run(one);
  EXPECT_EQ(SourceOf(one), PlanSource::kSearched);
  for (const ConvolutionPlanReport& report : one.Plans()) {
    EXPECT_GT(report.plan.us, 0);
    EXPECT_LE(report.plan.us, report.plan.first_us) << Description(report.key);
    EXPECT_LE(report.plan.workspace_bytes, kMostWorkspace_bytes);
  }
  ExpectNear(expected);
  ConvolutionPlanner other(folder_);
  ExpectEqual(Run(other), expected);
  EXPECT_EQ(SourceOf(other), PlanSource::kFile);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(TextOf(other.Plans()[i].plan), TextOf(one.Plans()[i].plan));
  }
}

TEST_F(ConvolutionPlannerTest, GivesTheSameBitsEachTime) {
  ConvolutionPlanner planner(folder_);
  const Passes expected = Run(planner);
  for (int i = 0; i < 20; ++i) ExpectEqual(Run(planner), expected);
}

TEST_F(ConvolutionPlannerTest, SearchesAgainWhereTheFileIsDamaged) {
  ConvolutionPlanner one(folder_);
  Run(one);
  WriteFile(File(), "what is this");
  ConvolutionPlanner other(folder_);
  Run(other);
  EXPECT_EQ(SourceOf(other), PlanSource::kSearched);
  ConvolutionPlanner third(folder_);
  Run(third);
  EXPECT_EQ(SourceOf(third), PlanSource::kFile);
}

TEST_F(ConvolutionPlannerTest, ReplacesWhatIsOfNoUse) {
  ConvolutionPlanner one(folder_);
  Run(one);
  // The file's lines are valid, but they contain plans that cuDNN does not have, and texts that are not plans.
  const fs::path path = File();
  const std::string device = DeviceText(
      of_.x.device().index(), "cuDNN " + std::to_string(at::globalContext().versionRuntimeCuDNN()));
  ASSERT_EQ(PlanFile(folder_, "convolutions", device).path(), path);
  std::string text;
  for (const ConvolutionPlanReport& report : one.Plans()) {
    ConvolutionPlan plan = report.plan;
    plan.engine = 1 << 20;
    const bool is_forward = report.key.pass == ConvolutionPass::kForward;
    text += PlanLine(device, Description(report.key), is_forward ? "what is this" : TextOf(plan)) +
            '\n';
  }
  WriteFile(path, text);
  ConvolutionPlanner other(folder_);
  ExpectNear(Run(other));
  EXPECT_EQ(SourceOf(other), PlanSource::kSearched);
  ConvolutionPlanner third(folder_);
  Run(third);
  EXPECT_EQ(SourceOf(third), PlanSource::kFile);
}

TEST_F(ConvolutionPlannerTest, SearchesWhereNothingCanBeKept) {
  ConvolutionPlanner planner("");
  ExpectNear(Run(planner));
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
}

TEST_F(ConvolutionPlannerTest, DoesNotSearchWhereItIsNotWanted) {
  ConvolutionPlanner planner(folder_);
  ExpectNear(Run(planner, /*searches=*/false));
  EXPECT_EQ(SourceOf(planner), PlanSource::kFirst);
  EXPECT_TRUE(fs::is_empty(folder_));
  Run(planner);
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
  ConvolutionPlanner other(folder_);
  Run(other, /*searches=*/false);
  EXPECT_EQ(SourceOf(other), PlanSource::kFile);
}

TEST_F(ConvolutionPlannerTest, DeterministicAlgorithmsAreNotSearchedFor) {
  ConvolutionPlanner first(folder_);
  const Passes expected = Run(first, /*searches=*/false);
  ConvolutionPlanner searched(folder_);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  ExpectEqual(Run(searched), expected);
  EXPECT_TRUE(fs::is_empty(folder_));
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  Run(searched);
  EXPECT_EQ(SourceOf(searched), PlanSource::kSearched);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  ExpectEqual(Run(searched), expected);
  ConvolutionPlanner other(folder_);
  ExpectEqual(Run(other), expected);
  EXPECT_EQ(SourceOf(other), PlanSource::kFirst);
}

TEST_F(ConvolutionPlannerTest, CanBeCaptured) {
  c10::cuda::device_synchronize();  // the tensors were made on another stream
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  {
    // This run creates the cuDNN handle and loads the kernels of the first plans, neither of which is allowed during a
    // capture.
    ConvolutionPlanner any("");
    Run(any, /*searches=*/false);
  }
  const auto capture = [&](ConvolutionPlanner& planner) {
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    const Passes passes = Run(planner);
    graph.capture_end();
    for (const at::Tensor& made : passes) made.zero_();
    graph.replay();
    ExpectNear(passes);
  };
  ConvolutionPlanner planner(folder_);
  capture(planner);
  EXPECT_EQ(SourceOf(planner), PlanSource::kFirst);
  EXPECT_TRUE(fs::is_empty(folder_));
  Run(planner);
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
  capture(planner);
  // Checks that a plan file may be read during a capture.
  ConvolutionPlanner other(folder_);
  capture(other);
  EXPECT_EQ(SourceOf(other), PlanSource::kFile);
}

TEST_F(ConvolutionPlannerTest, ThreadsShareThePlans) {
  ConvolutionPlanner planner(folder_);
  std::vector<Passes> of_threads(4);
  c10::cuda::device_synchronize();
  {
    std::vector<std::jthread> threads;
    for (Passes& passes : of_threads) {
      threads.emplace_back([&] {
        // One thread searches for a plan while the other threads wait for it.
        const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
        for (int i = 0; i < 10; ++i) passes = Run(planner);
        c10::cuda::getCurrentCUDAStream().synchronize();
      });
    }
  }
  const Passes expected = Run(planner);
  for (const Passes& passes : of_threads) ExpectEqual(passes, expected);
  EXPECT_EQ(SourceOf(planner), PlanSource::kSearched);
}

TEST_F(ConvolutionPlannerTest, IsSeenByWhoRecordsFunctions) {
  ConvolutionPlanner planner("");
  static int forwards, gradients;
  forwards = gradients = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call)
                                     -> std::unique_ptr<at::ObserverContext> {
        forwards += call.name() == std::string_view(kConvolutionEvent);
        gradients += call.name() == std::string_view(kConvolutionGradientEvent);
        return nullptr;
      }).needsInputs(true));
  Run(planner);
  at::removeCallback(handle);
  EXPECT_EQ(forwards, 1);
  EXPECT_EQ(gradients, 2);
}

}  // namespace
}  // namespace lockstep::ops
