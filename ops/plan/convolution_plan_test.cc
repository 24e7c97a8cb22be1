// Tests the texts of convolution keys and of convolution plans.

#include "ops/plan/convolution_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep::ops {
namespace {

// Returns a plan whose times, in microseconds, have no more digits than the text keeps.
ConvolutionPlan Plan() {
  return {.engine = 62,
          .knobs = {{2, 4}, {13, 0}, {18, -1}},
          .workspace_bytes = 32 << 20,
          .us = 80.125,
          .first_us = 90.25};
}

TEST(ConvolutionKey, HasATextOfItsOwn) {
  const ConvolutionKey key{.count = 256,
                           .inputs = 64,
                           .height = 56,
                           .width = 48,
                           .outputs = 128,
                           .kernel_height = 3,
                           .kernel_width = 5,
                           .stride = 2,
                           .padding = 1};
  EXPECT_EQ(Description(key), "forward of 256x64x56x48 by 128x64x3x5 stride 2 padding 1 bf16");
  EXPECT_EQ(key.OutputHeight(), 28);
  EXPECT_EQ(key.OutputWidth(), 23);
  std::set<std::string> texts{Description(key)};
  const auto differs = [&](auto change) {
    ConvolutionKey other = key;
    change(other);
    EXPECT_TRUE(texts.insert(Description(other)).second) << Description(other);
  };
  differs([](ConvolutionKey& other) { other.pass = ConvolutionPass::kInputGradient; });
  differs([](ConvolutionKey& other) { other.pass = ConvolutionPass::kWeightGradient; });
  differs([](ConvolutionKey& other) { other.count = 7; });
  differs([](ConvolutionKey& other) { other.inputs = 8; });
  differs([](ConvolutionKey& other) { other.height = 7; });
  differs([](ConvolutionKey& other) { other.width = 7; });
  differs([](ConvolutionKey& other) { other.outputs = 8; });
  differs([](ConvolutionKey& other) { other.kernel_height = 1; });
  differs([](ConvolutionKey& other) { other.kernel_width = 1; });
  differs([](ConvolutionKey& other) { other.stride = 1; });
  differs([](ConvolutionKey& other) { other.padding = 0; });
  differs([](ConvolutionKey& other) { other.type = FloatType::kFloat16; });
}

TEST(ConvolutionPlan, ComesBack) {
  EXPECT_EQ(TextOf(Plan()),
            "engine 62 knobs 2:4,13:0,18:-1 workspace 33554432 us 80.125 first 90.250");
  EXPECT_EQ(ParseConvolutionPlan(TextOf(Plan())), Plan());
  EXPECT_EQ(ParseConvolutionPlan(TextOf(ConvolutionPlan())), ConvolutionPlan());
}

TEST(ConvolutionPlan, OtherTextsAreNone) {
  const std::string text = TextOf(Plan());
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseConvolutionPlan(text.substr(0, i))) << i;
  }
  EXPECT_FALSE(ParseConvolutionPlan(text + " "));
  EXPECT_FALSE(ParseConvolutionPlan("what is this"));
  for (const char* knobs : {"2", "2:", ":4", "2:4,", "2:4,2:5", "13:0,2:4", "2:4,-"}) {
    EXPECT_FALSE(ParseConvolutionPlan("engine 1 knobs " + std::string(knobs) +
                                      " workspace 0 us 1.000 first 1.000"))
        << knobs;
  }
}

}  // namespace
}  // namespace lockstep::ops
