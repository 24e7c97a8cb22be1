// Tests the texts of product keys and of product plans.

#include "ops/plan/product_plan.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep::ops {
namespace {

// Returns a plan whose times, in microseconds, have no more digits than the text keeps.
ProductPlan Plan(uint64_t number) {
  return {.algorithm = {number, 0, ~uint64_t{0}, 3, 4, 5, 6, 0xfedcba9876543210},
          .workspace_bytes = 32 << 20,
          .us = 80.125,
          .first_us = 90.25};
}

TEST(ProductKey, HasATextOfItsOwn) {
  const ProductKey key{
      .m = 8, .n = 16, .k = 24, .a_stride = 24, .b_stride = 16, .to_stride = 16, .adds = false};
  EXPECT_EQ(Description(key), "8x16x24 a=rows/24 b=rows/16 to=16 bf16>bf16 sets");
  std::set<std::string> texts{Description(key)};
  const auto differs = [&](auto change) {
    ProductKey other = key;
    change(other);
    EXPECT_TRUE(texts.insert(Description(other)).second) << Description(other);
  };
  differs([](ProductKey& other) { other.m = 32; });
  differs([](ProductKey& other) { other.n = 32; });
  differs([](ProductKey& other) { other.k = 32; });
  differs([](ProductKey& other) { other.a_by_columns = true; });
  differs([](ProductKey& other) { other.a_stride = 32; });
  differs([](ProductKey& other) { other.b_by_columns = true; });
  differs([](ProductKey& other) { other.b_stride = 32; });
  differs([](ProductKey& other) { other.to_stride = 32; });
  differs([](ProductKey& other) { other.input = FloatType::kFloat16; });
  differs([](ProductKey& other) { other.output = FloatType::kFloat32; });
  differs([](ProductKey& other) { other.adds = true; });
  differs([](ProductKey& other) { other.has_bias = true; });
}

TEST(ProductPlan, ComesBack) {
  for (int i = 1; i <= 30; ++i) EXPECT_EQ(ParseProductPlan(TextOf(Plan(i))), Plan(i)) << i;
  EXPECT_EQ(ParseProductPlan(TextOf(ProductPlan())), ProductPlan());
}

TEST(ProductPlan, OtherTextsAreNone) {
  const std::string text = TextOf(Plan(1));
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    EXPECT_FALSE(ParseProductPlan(text.substr(0, i))) << i;
  }
  EXPECT_FALSE(ParseProductPlan(text + " "));
  EXPECT_FALSE(ParseProductPlan("what is this"));
}

}  // namespace
}  // namespace lockstep::ops
