#include "observe/verdict/memory_trend.h"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

double TrendOf(int64_t readings, const std::function<int64_t(int64_t)>& bytes) {
  MemoryTrend trend;
  for (int64_t i = 0; i < readings; ++i) trend.Add(10 * i, bytes(i));
  return trend.BytesPerStep();
}

TEST(MemoryTrend, MeasuresALeak) {
  for (const int64_t readings : {20, 100, 1000, 100'000}) {
    const double found =
        TrendOf(readings, [](int64_t i) { return 500 * kMebibyte + i * 10 * kMebibyte; });
    EXPECT_NEAR(found, static_cast<double>(kMebibyte), 0.02 * kMebibyte) << readings;
  }
}

TEST(MemoryTrend, CountsFromTheLeastGrowthOn) {
  MemoryTrend coarse;
  MemoryTrend fine(4 * kMebibyte);
  for (int64_t i = 0; i < 20; ++i) {
    coarse.Add(i, i * kMebibyte);
    fine.Add(i, i * kMebibyte);
  }
  EXPECT_EQ(coarse.BytesPerStep(), 0);
  EXPECT_EQ(fine.BytesPerStep(), kMebibyte);
}

TEST(MemoryTrend, MemoryThatStaysIsNone) {
  EXPECT_EQ(TrendOf(1000, [](int64_t) { return 900 * kMebibyte; }), 0);
}

TEST(MemoryTrend, AWarmUpIsNone) {
  EXPECT_EQ(TrendOf(1000, [](int64_t i) { return std::min<int64_t>(i, 300) * 10 * kMebibyte; }), 0);
}

TEST(MemoryTrend, OneJumpIsNone) {
  EXPECT_EQ(TrendOf(1000, [](int64_t i) { return i < 800 ? kMebibyte : 900 * kMebibyte; }), 0);
}

TEST(MemoryTrend, MemoryThatComesAndGoesIsNone) {
  EXPECT_EQ(TrendOf(1000, [](int64_t i) { return (i % 50) * 30 * kMebibyte; }), 0);
}

TEST(MemoryTrend, AFewReadingsSayNothing) {
  EXPECT_EQ(TrendOf(10, [](int64_t i) { return i * 100 * kMebibyte; }), 0);
}

}  // namespace
}  // namespace lockstep
