#include "observe/page/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Column> ColumnsOfList(const std::vector<double>& x, size_t most) {
  return ColumnsOf({0, x.size()}, most, [&](size_t i) { return x[i]; });
}

std::vector<double> Counted(size_t count, double first = 1, double step = 1) {
  std::vector<double> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = first + step * static_cast<double>(i);
  return x;
}

// Expects that the columns contain each line once, in order.
void ExpectWhole(const std::vector<Column>& columns, size_t lines) {
  size_t at = 0;
  for (const Column& column : columns) {
    EXPECT_EQ(column.begin, at);
    EXPECT_GT(column.end, column.begin);
    at = column.end;
  }
  EXPECT_EQ(at, lines);
}

TEST(Columns, AreTheLinesOfAShortCurve) {
  EXPECT_THAT(ColumnsOfList({}, 10), IsEmpty());
  EXPECT_EQ(ColumnsOfList({5, 5, 5}, 3).size(), 3);
  EXPECT_EQ(ColumnsOfList(Counted(10), 10).size(), 10);
  const std::vector<Column> part = ColumnsOf({4, 6}, 10, [](size_t) { return 0; });
  ASSERT_EQ(part.size(), 2);
  EXPECT_EQ(part[0].begin, 4);
}

TEST(Columns, AreNoMoreThanAsked) {
  std::mt19937_64 random(1);
  for (const size_t most : {size_t{1}, size_t{7}, size_t{1000}}) {
    for (const size_t lines : {size_t{8}, size_t{1001}, size_t{2001}, size_t{50'000}}) {
      for (const double first : {0.0, 1.0, 1.7e9}) {
        std::vector<double> x = Counted(lines, first, 0.01);
        // The distances between lines vary, as if jobs logged with different periods.
        for (double& value : x) value += static_cast<double>(random() % 8 * 1000);
        std::ranges::sort(x);
        const std::vector<Column> columns = ColumnsOfList(x, most);
        EXPECT_LE(columns.size(), std::max(most, lines <= most ? lines : most));
        ExpectWhole(columns, lines);
      }
    }
  }
  const std::vector<Column> columns = ColumnsOfList(Counted(1'000'000), 1000);
  EXPECT_GE(columns.size(), 480);
  ExpectWhole(columns, 1'000'000);
  // In the first curve all x are equal, and in the second curve the x span almost the whole range of a double.
  EXPECT_EQ(ColumnsOfList(std::vector<double>(100, 3), 10).size(), 1);
  EXPECT_LE(ColumnsOfList({0, 1e-300, 1, 1e300, 1.7e308}, 3).size(), 3);
}

TEST(Columns, StayWhileACurveGrows) {
  const std::vector<double> x = Counted(5000);
  const std::vector<Column> before = ColumnsOfList({x.begin(), x.begin() + 4500}, 1000);
  const std::vector<Column> after = ColumnsOfList(x, 1000);
  for (size_t i = 0; i + 1 < before.size(); ++i) {
    EXPECT_EQ(before[i].begin, after[i].begin);
    EXPECT_EQ(before[i].end, after[i].end);
  }
}

TEST(Reduce, LosesNoSpike) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<double> values(10'000, 1);
    const size_t high = random() % values.size();
    const size_t low = random() % values.size();
    values[high] = 50;
    values[low] = -50;
    const Reduced reduced =
        Reduce(ColumnsOfList(Counted(values.size()), 1000), [&](size_t i) { return values[i]; });
    EXPECT_EQ(std::ranges::max(reduced.greatest), values[high]);
    EXPECT_EQ(std::ranges::min(reduced.least), -50);
  }
}

TEST(Reduce, LeavesOutWhatIsNotFinite) {
  const double nan = std::nan("");
  const std::vector<double> values{1, nan, 3, std::numeric_limits<double>::infinity(), nan, nan, 5};
  const Reduced reduced = Reduce({{0, 3}, {3, 6}, {6, 7}}, [&](size_t i) { return values[i]; });
  EXPECT_THAT(reduced.mean, ElementsAre(2, testing::IsNan(), 5));
  EXPECT_THAT(reduced.least, ElementsAre(1, testing::IsNan(), 5));
  EXPECT_THAT(reduced.greatest, ElementsAre(3, testing::IsNan(), 5));
}

}  // namespace
}  // namespace lockstep
