#include "data/dataset/inferred_classes.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep {
namespace {

using Lines = std::vector<std::string>;

Lines RemarksOn(const std::vector<int64_t>& labels, const std::string& cure = "") {
  return RemarksOnLabels<int64_t>("y.npy", labels, cure);
}

TEST(RemarksOnLabels, AreNoneIfEachClassHasASample) {
  EXPECT_EQ(RemarksOn({}), Lines{});
  EXPECT_EQ(RemarksOn({0, 0}), Lines{});
  EXPECT_EQ(RemarksOn({2, 0, 1, 1}), Lines{});
  EXPECT_EQ(RemarksOn({-1, 1, 0}), Lines{});  // -1 is an unknown label
}

TEST(RemarksOnLabels, NameTheClassesWithoutSamples) {
  EXPECT_EQ(
      RemarksOn({1, 3, 2}),
      Lines{"y.npy: its labels are 1 to 3: classes are counted from 0, so the model learns 4 "
            "and has no samples of class 0; numbers from 0 to 2 would make 3 classes of them"});
  EXPECT_EQ(RemarksOn({5, 6}),
            Lines{"y.npy: its labels are 5 to 6: classes are counted from 0, so the model learns 7 "
                  "and has no samples of class 0 to 4; numbers from 0 to 1 would make 2 classes of "
                  "them"});
  EXPECT_EQ(RemarksOn({7, 7}),
            Lines{"y.npy: its labels are 7 to 7: classes are counted from 0, so the model learns 8 "
                  "and has no samples of class 0 to 6; 0 instead would make 1 class of them"});
}

TEST(RemarksOnLabels, CountGaps) {
  EXPECT_EQ(
      RemarksOn({30, 0, 30}, "data.csv.label_names: true"),
      Lines{"y.npy: its labels are 0, 30: classes are counted from 0, so the model learns 31, "
            "of which 29 have no sample; data.csv.label_names: true would make 2 classes of "
            "them"});
  EXPECT_EQ(
      RemarksOn({2, 4, 2}),
      Lines{"y.npy: its labels are 2, 4: classes are counted from 0, so the model learns 5, of "
            "which 3 have no sample; numbers from 0 to 1 would make 2 classes of them"});
  std::vector<int64_t> even(20);
  std::iota(even.begin(), even.end(), 0);
  for (int64_t& label : even) label *= 2;
  EXPECT_EQ(
      RemarksOn(even),
      Lines{"y.npy: its labels are 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ... (20 in all): "
            "classes are counted from 0, so the model learns 39, of which 19 have no sample; "
            "numbers from 0 to 19 would make 20 classes of them"});
}

}  // namespace
}  // namespace lockstep
