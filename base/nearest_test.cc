#include "base/nearest.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(NearestName, FindsTheSmallestDistance) {
  EXPECT_EQ(NearestName("lrr", {"momentum", "lr", "nesterov"}), "lr");
  EXPECT_EQ(NearestName("mpl", {"convnet", "mlp"}), "mlp");
  EXPECT_EQ(NearestName("trian", {"version", "train"}), "train");
  EXPECT_EQ(NearestName("epoch", {"seed", "epochs", "optimizer"}), "epochs");
  EXPECT_EQ(NearestName("adamW", {"SGD", "ADAM", "ADAMW"}), "ADAMW");
}

TEST(NearestName, TheFirstOfSeveralWins) { EXPECT_EQ(NearestName("ab", {"ax", "ay"}), "ax"); }

TEST(NearestName, NothingIsNearWhenMostLettersDiffer) {
  EXPECT_EQ(NearestName("zzz", {"lr", "momentum"}), "");
  EXPECT_EQ(NearestName("lr", {}), "");
}

TEST(DidYouMean, IsTheTailOfAnErrorLine) {
  EXPECT_EQ(DidYouMean("hiden", {"hidden"}), "; did you mean \"hidden\"?");
  EXPECT_EQ(DidYouMean("x", {"hidden"}), "");
}

}  // namespace
}  // namespace lockstep
