// Reduces a curve to as many columns as a screen shows, and computes the mean, the least and the greatest value of each
// column.
//
// Promise: no spike is lost. A column is an interval of x whose width is a power of two, so the columns of a growing
// curve stay the same until their width doubles. A curve with few lines is not reduced. (observe/page/columns_test.cc)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace lockstep {

// The lines `begin` to `end` - 1 of a curve. A line of a curve is one line of the log.
struct Column {
  size_t begin = 0;
  size_t end = 0;
};

// Cuts the lines of a curve into columns of at least one line each. Returns at most `most` columns; if there are at
// most `most` lines, each line is a column. x_of(i) returns the x of line i. The x values must be finite and ascending.
template <typename XOf>
std::vector<Column> ColumnsOf(Column lines, size_t most, const XOf& x_of) {
  std::vector<Column> columns;
  const size_t count = lines.end - lines.begin;
  if (count == 0) return columns;
  if (count <= most) {
    for (size_t i = lines.begin; i < lines.end; ++i) columns.push_back({i, i + 1});
    return columns;
  }
  const double first = x_of(lines.begin);
  const double last = x_of(lines.end - 1);
  const auto cuts = [](double x, double width) { return std::floor(x / width); };
  double width = std::exp2(std::floor(std::log2(
      std::max((last - first) / static_cast<double>(most), std::numeric_limits<double>::min()))));
  while (cuts(last, width) - cuts(first, width) + 1 > static_cast<double>(most)) width *= 2;
  double at = cuts(first, width);
  columns.push_back({lines.begin, lines.begin});
  for (size_t i = lines.begin; i < lines.end; ++i) {
    if (const double here = cuts(x_of(i), width); here > at) {
      at = here;
      columns.push_back({i, i});
    }
    columns.back().end = i + 1;
  }
  return columns;
}

// The mean, least and greatest value of each column of a curve. Values that are not finite are left out. If a column
// has no finite value, its mean, least and greatest value are NaN.
struct Reduced {
  std::vector<double> mean;
  std::vector<double> least;
  std::vector<double> greatest;
};

template <typename ValueOf>
Reduced Reduce(const std::vector<Column>& columns, const ValueOf& value_of) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Reduced reduced;
  for (const Column& column : columns) {
    double sum = 0;
    double least = kNan;
    double greatest = kNan;
    size_t count = 0;
    for (size_t i = column.begin; i < column.end; ++i) {
      const double value = value_of(i);
      if (!std::isfinite(value)) continue;
      sum += value;
      least = count == 0 ? value : std::min(least, value);
      greatest = count == 0 ? value : std::max(greatest, value);
      ++count;
    }
    reduced.mean.push_back(count == 0 ? kNan : sum / static_cast<double>(count));
    reduced.least.push_back(least);
    reduced.greatest.push_back(greatest);
  }
  return reduced;
}

}  // namespace lockstep
