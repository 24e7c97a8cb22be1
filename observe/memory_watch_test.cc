#include "observe/memory_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/tensor/range.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 256;
constexpr int64_t kWidth = 512;
constexpr int64_t kOut = 128;
constexpr int64_t kFloat = sizeof(float);

int64_t Of(const MemoryTally& tally, MemoryOwner owner) {
  return tally.OwnersAtPeak()[static_cast<size_t>(owner)];
}

std::vector<OwnedTensor> Nothing() { return {}; }

size_t IndexOf(Phase phase) { return static_cast<size_t>(phase); }

// A model of a linear layer and tanh, whose loss is the sum of its outputs.
struct Model {
  at::Tensor weight = at::ones({kOut, kWidth}).requires_grad_();
  at::Tensor input = at::ones({kRows, kWidth});

  at::Tensor Loss() const {
    at::Tensor output;
    {
      const ModuleScope scope("linear");
      output = at::linear(input, weight);
    }
    const ModuleScope scope("tanh");
    return output.tanh().sum();
  }
};

TEST(MemoryWatch, MeasuresPhasesOwnersAndModulesOfAStep) {
  Model model;
  MemoryWatch watch{at::Device(at::kCPU)};
  const auto held = [&] {
    return std::vector<OwnedTensor>{{MemoryOwner::kParameters, model.weight},
                                    {MemoryOwner::kSamples, model.input}};
  };
  const bool watched = watch.During(held, [&] {
    watch.Mark(Phase::kForward);
    const at::Tensor loss = model.Loss();
    watch.Mark(Phase::kBackward);
    loss.backward();
    watch.Mark(Phase::kUpdate);
  });
  ASSERT_TRUE(watched);
  const MemoryTally& tally = watch.tally();
  EXPECT_EQ(tally.held_bytes(), (kOut + kRows) * kWidth * kFloat);
  // At the peak of the forward pass two outputs are allocated: the output of tanh, which is kept for the backward pass,
  // and the output of the linear layer, which is kept until tanh is computed.
  const int64_t output = kRows * kOut * kFloat;
  const std::vector<int64_t>& phases = tally.phase_peaks();
  EXPECT_GE(phases[IndexOf(Phase::kForward)], tally.held_bytes() + 2 * output);
  EXPECT_LT(phases[IndexOf(Phase::kForward)], tally.held_bytes() + 2 * output + 1024);
  // The gradient of the weight is still allocated in the update.
  const int64_t gradient = kOut * kWidth * kFloat;
  EXPECT_GE(phases[IndexOf(Phase::kUpdate)], tally.held_bytes() + gradient);
  EXPECT_EQ(tally.peak_bytes(), *std::ranges::max_element(phases));
  const OwnerBytes owners = tally.OwnersAtPeak();
  EXPECT_EQ(std::accumulate(owners.begin(), owners.end(), int64_t{0}), tally.peak_bytes());
  EXPECT_EQ(Of(tally, MemoryOwner::kParameters), gradient);
  EXPECT_EQ(Of(tally, MemoryOwner::kSamples), kRows * kWidth * kFloat);
  EXPECT_GT(tally.ModulesAtPeak().count("tanh"), 0);
  // The gradient was allocated in the backward pass and is not freed.
  ASSERT_FALSE(tally.Kept().empty());
  EXPECT_EQ(tally.Kept().front().bytes, gradient);
  EXPECT_EQ(tally.Kept().front().phase, IndexOf(Phase::kBackward));
}

TEST(MemoryWatch, NamesTensorsThatAreKept) {
  std::vector<at::Tensor> kept;
  MemoryWatch watch{at::Device(at::kCPU)};
  watch.During(Nothing, [&] {
    watch.Mark(Phase::kForward);
    const ModuleScope scope("blocks.3");
    kept.push_back(at::ones({1000}));
    at::ones({5000});
  });
  ASSERT_EQ(watch.tally().Kept().size(), 1);
  EXPECT_EQ(watch.tally().Kept()[0].module, "blocks.3");
  EXPECT_EQ(watch.tally().Kept()[0].bytes, 1000 * kFloat);
}

// Checks that ranges of kind Range::Of::kStep, which mark phases and gradient buckets, do not count as modules.
TEST(MemoryWatch, NamesNoPhaseAsAModule) {
  std::vector<at::Tensor> kept;
  MemoryWatch watch{at::Device(at::kCPU)};
  watch.During(Nothing, [&] {
    const Range step("ProfilerStep#17", Range::Of::kStep);
    watch.Mark(Phase::kForward);
    {
      const Range phase("forward", Range::Of::kStep);
      const Range block("update");  // a user's module may have any name
      const Range part("attention");
      kept.push_back(at::ones({1000}));
    }
    watch.Mark(Phase::kBackward);
    const Range phase("backward", Range::Of::kStep);
    const Range bucket("bucket 0", Range::Of::kStep);
    kept.push_back(at::ones({500}));
  });
  EXPECT_EQ(watch.tally().ModulesAtPeak(),
            (std::map<std::string, int64_t>{{"update.attention", 1000 * kFloat}}));
  EXPECT_EQ(Of(watch.tally(), MemoryOwner::kTemporaries), 500 * kFloat);
}

// Checks that During() does not keep the held tensors alive. Otherwise memory that the step frees, such as the previous
// step's gradients, would stay allocated.
TEST(MemoryWatch, KeepsNothingAlive) {
  MemoryWatch watch{at::Device(at::kCPU)};
  at::Tensor gradients = at::ones({1000});
  const c10::weak_intrusive_ptr<c10::TensorImpl> alive(gradients.getIntrusivePtr());
  watch.During([&] { return std::vector<OwnedTensor>{{MemoryOwner::kGradients, gradients}}; },
               [&] {
                 gradients.reset();
                 EXPECT_TRUE(alive.expired());
               });
  EXPECT_EQ(watch.tally().peak_bytes(), 1000 * kFloat);
}

TEST(MemoryWatch, TakesTensorsWithoutStorage) {
  MemoryWatch watch{at::Device(at::kCPU)};
  const at::Tensor sparse = at::eye(3).to_sparse();
  EXPECT_TRUE(watch.During(
      [&] {
        return std::vector<OwnedTensor>{{MemoryOwner::kParameters, sparse},
                                        {MemoryOwner::kParameters, at::Tensor()}};
      },
      [] {}));
  EXPECT_EQ(watch.tally().peak_bytes(), 0);
}

TEST(MemoryWatch, TakesTheOwnerOfAScope) {
  at::Tensor moments;
  MemoryWatch watch{at::Device(at::kCPU)};
  watch.During(Nothing, [&] {
    watch.Mark(Phase::kUpdate);
    const MemoryScope scope(MemoryOwner::kMoments);
    moments = at::zeros({3000});
  });
  EXPECT_EQ(Of(watch.tally(), MemoryOwner::kMoments), 3000 * kFloat);
}

TEST(MemoryWatch, SeesNothingBeforeAndAfter) {
  std::vector<at::Tensor> tensors{at::ones({1000})};
  MemoryWatch watch{at::Device(at::kCPU)};
  watch.During(Nothing, [&] { tensors.push_back(at::ones({2000})); });
  tensors.push_back(at::ones({4000}));
  tensors.clear();
  EXPECT_EQ(watch.tally().now_bytes(), 2000 * kFloat);
  EXPECT_EQ(watch.tally().peak_bytes(), 2000 * kFloat);
}

TEST(MemoryWatch, SeesOnlyItsOwnThread) {
  at::Tensor other;
  MemoryWatch watch{at::Device(at::kCPU)};
  watch.During(Nothing, [&] { std::jthread([&] { other = at::ones({1000}); }).join(); });
  EXPECT_EQ(watch.tally().peak_bytes(), 0);
}

TEST(MemoryWatch, LetsWarningsThrough) {
  MemoryWatch watch{at::Device(at::kCPU)};
  testing::internal::CaptureStderr();
  watch.During(Nothing, [] { TORCH_WARN("of the model"); });
  EXPECT_NE(testing::internal::GetCapturedStderr().find("of the model"), std::string::npos);
}

// Frees 2000 tensors that were allocated before During(). Without the code under test, LibTorch would print one warning
// for every 1000 frees of memory whose allocation it did not see.
TEST(MemoryWatch, LetsLibTorchPrintNothing) {
  MemoryWatch watch{at::Device(at::kCPU)};
  std::vector<at::Tensor> before;
  for (int i = 0; i < 2000; ++i) before.push_back(at::ones({16}));
  testing::internal::CaptureStderr();
  watch.During(Nothing, [&] { before.clear(); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(watch.tally().now_bytes(), 0);
}

TEST(MemoryWatch, EndsWithAnException) {
  MemoryWatch watch{at::Device(at::kCPU)};
  EXPECT_THROW(watch.During(Nothing, [] { throw std::runtime_error("planted"); }),
               std::runtime_error);
  const at::Tensor after = at::ones({1000});
  EXPECT_EQ(watch.tally().now_bytes(), 0);
  EXPECT_TRUE(watch.During(Nothing, [] {}));
}

TEST(MemoryWatch, LeavesAProfilerAlone) {
  namespace profiler = torch::autograd::profiler;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/false,
                                                     /*profile_memory=*/true);
  const std::set activities{torch::profiler::impl::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  MemoryWatch watch{at::Device(at::kCPU)};
  bool acted = false;
  EXPECT_FALSE(watch.During(Nothing, [&] {
    at::ones({1000});
    acted = true;
  }));
  EXPECT_TRUE(acted);
  EXPECT_FALSE(profiler::disableProfiler()->events().empty());
  EXPECT_EQ(watch.tally().peak_bytes(), 0);
}

}  // namespace
}  // namespace lockstep
