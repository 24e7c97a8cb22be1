#include "data/tables/csv_options.h"

namespace lockstep {

int64_t DateCircleNumbers(CsvDates dates) {
  switch (dates) {
    case CsvDates::kNone:
      return 0;
    case CsvDates::kDays:
      return 4;
    case CsvDates::kTimes:
      return 6;
  }
  return 0;
}

int64_t CsvColumn::inputs() const {
  if (is_category()) return static_cast<int64_t>(categories.size()) + (has_rare ? 1 : 0);
  return 1 + (missing_indicator ? 1 : 0) + DateCircleNumbers(dates);
}

std::vector<FeatureRange> FeaturesOfCategories(const std::vector<CsvColumn>& columns) {
  std::vector<FeatureRange> ranges;
  int64_t first = 0;
  for (const CsvColumn& column : columns) {
    if (column.is_category()) ranges.push_back({.first = first, .count = column.inputs()});
    first += column.inputs();
  }
  return ranges;
}

}  // namespace lockstep
