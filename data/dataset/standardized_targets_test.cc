#include "data/dataset/standardized_targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "data/dataset/in_memory.h"

namespace lockstep {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::FloatEq;

// Returns three samples with an input of 0 and two columns of targets: 1, 4 and 7, and a constant 5.
std::shared_ptr<const Dataset> ThreeSamples() {
  const std::vector<float> targets = {1, 5, 4, 5, 7, 5};
  const auto bytes = std::as_bytes(std::span(targets));
  return MakeInMemory({.shape = {1}, .classes = 2, .task = Task::kRegression},
                      std::vector<std::byte>(3 * sizeof(float)), {bytes.begin(), bytes.end()});
}

TEST(StandardizedTargets, HaveMomentsOfThePopulation) {
  const TargetMoments moments = MomentsOfTargets(*ThreeSamples());
  EXPECT_THAT(moments.mean, ElementsAre(DoubleEq(4), DoubleEq(5)));
  EXPECT_THAT(moments.std, ElementsAre(DoubleEq(std::sqrt(6)), 1));
}

TEST(StandardizedTargets, AreTheSameHoweverTheyAreRead) {
  const auto whole = ThreeSamples();
  const StandardizedTargets dataset(whole, MomentsOfTargets(*whole));
  EXPECT_THAT(dataset.spec().target_mean, ElementsAre(4, 5));
  const auto far = static_cast<float>(3 / std::sqrt(6));
  std::vector<float> inputs(2), targets(4), target(2);
  dataset.ReadSome(std::vector<int64_t>{2, 0}, /*epoch=*/0,
                   reinterpret_cast<std::byte*>(inputs.data()),
                   reinterpret_cast<std::byte*>(targets.data()));
  EXPECT_THAT(targets, ElementsAre(FloatEq(far), 0, FloatEq(-far), 0));
  dataset.ReadTarget(2, reinterpret_cast<std::byte*>(target.data()));
  EXPECT_THAT(target, ElementsAre(FloatEq(far), 0));
  dataset.Read(1, /*epoch=*/0, reinterpret_cast<std::byte*>(inputs.data()),
               reinterpret_cast<std::byte*>(target.data()));
  EXPECT_THAT(target, ElementsAre(0, 0));
}

}  // namespace
}  // namespace lockstep
