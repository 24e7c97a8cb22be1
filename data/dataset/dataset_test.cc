#include "data/dataset/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "data/dataset/synthetic.h"
#include "data/dataset/testing/read_sample.h"

namespace lockstep {
namespace {

TEST(Subset, ReadsTheChosenSamples) {
  const auto whole = MakeSynthetic({.spec = {.shape = {1}, .classes = 9}, .samples = 3});
  const Subset subset(whole, {2, 0});
  EXPECT_EQ(subset.size(), 2);
  int64_t label = -1, expected = -1;
  for (const auto& [index, in_whole] : {std::pair{0, 2}, std::pair{1, 0}}) {
    EXPECT_EQ(InputOf(subset, index, &label), InputOf(*whole, in_whole, &expected));
    EXPECT_EQ(label, expected);
    EXPECT_EQ(subset.NumberInFiles(index), in_whole);
  }
}

TEST(Subset, ReadsSomeOfTheChosenSamples) {
  const auto whole = MakeSynthetic({.spec = {.shape = {1}, .classes = 9}, .samples = 30});
  const Subset subset(whole, {20, 0, 7, 7});
  const std::vector<int64_t> indices = {3, 0, 1};
  std::vector<float> inputs(indices.size());
  std::vector<int64_t> labels(indices.size());
  subset.ReadSome(indices, /*epoch=*/0, reinterpret_cast<std::byte*>(inputs.data()),
                  reinterpret_cast<std::byte*>(labels.data()));
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t label = -1;
    EXPECT_EQ(InputOf(subset, indices[i], &label), std::vector{inputs[i]});
    EXPECT_EQ(labels[i], label);
  }
}

}  // namespace
}  // namespace lockstep
