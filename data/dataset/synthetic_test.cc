#include "data/dataset/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "data/dataset/testing/read_sample.h"

namespace lockstep {
namespace {

TEST(Synthetic, DrawsEachSampleFromItsNumber) {
  const SampleSpec spec{.shape = {2, 3}, .classes = 4};
  const auto dataset = MakeSynthetic({.spec = spec, .samples = 100});
  int64_t label = -1, again = -1;
  const std::vector<float> input = InputOf(*dataset, 7, &label);
  EXPECT_EQ(InputOf(*dataset, 7, &again), input);
  EXPECT_EQ(label, again);
  EXPECT_NE(InputOf(*dataset, 8, &label), input);
  std::set<int64_t> labels;
  for (int64_t i = 0; i < 100; ++i) {
    for (const float value : InputOf(*dataset, i, &label)) EXPECT_LE(std::abs(value), 1);
    labels.insert(label);
  }
  EXPECT_EQ(labels, (std::set<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace lockstep
