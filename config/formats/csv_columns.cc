#include "config/formats/csv_columns.h"

#include "base/error.h"
#include "config/schema/fields.h"
#include "data/tables/csv_spelling.h"

namespace lockstep {
namespace {

CsvDates DatesOf(const config::Csv::Column& kept) {
  switch (kept.dates()) {
    case config::Csv::Column::NO_DATES:
      return CsvDates::kNone;
    case config::Csv::Column::DAYS:
      return CsvDates::kDays;
    case config::Csv::Column::TIMES:
      return CsvDates::kTimes;
  }
  throw BugError("dates {} of data.csv.column", static_cast<int>(kept.dates()));
}

CsvColumn ColumnOf(const config::Csv::Column& kept) {
  return {.name = kept.name(),
          .mean = kept.mean(),
          .std = kept.has_std() ? kept.std() : 1,
          .median = kept.median(),
          .quartile_range = kept.has_quartile_range() ? kept.quartile_range() : 1,
          .quantiles{kept.quantile().begin(), kept.quantile().end()},
          .missing_indicator = kept.missing_indicator(),
          .decimal = DecimalOf(kept.decimal()).value_or(CsvDecimal::kPoint),
          .dates = DatesOf(kept),
          .categories = ListOf(kept.category()),
          .has_rare = kept.rare()};
}

}  // namespace

CsvScaling ScalingOf(const config::Csv& csv) {
  switch (csv.scaling()) {
    case config::Csv::NONE:
      return CsvScaling::kNone;
    case config::Csv::STANDARD:
      return CsvScaling::kStandard;
    case config::Csv::ROBUST:
      return CsvScaling::kRobust;
    case config::Csv::QUANTILE:
      return CsvScaling::kQuantile;
  }
  throw BugError("data.csv.scaling {}", static_cast<int>(csv.scaling()));
}

bool KeepsMoments(const config::Csv& csv) {
  return csv.scaling() != config::Csv::NONE || csv.missing() == config::Csv::MEAN;
}

void RemoveSpelling(config::Csv& csv) {
  const DecimalRule rule = DecimalRuleOf(csv);
  const auto replace = [&](google::protobuf::RepeatedPtrField<std::string>& texts) {
    const ColumnKeys key_of(ListOf(texts), rule);
    for (std::string& text : texts) text = key_of(text);
  };
  for (config::Csv::Column& column : *csv.mutable_column()) {
    column.clear_decimal();
    replace(*column.mutable_category());
  }
  replace(*csv.mutable_classes());
  csv.clear_delimiter();
  csv.clear_decimal();
  csv.clear_label_decimal();
}

DecimalRule DecimalRuleOf(const config::Csv& csv) {
  return {.delimiter = csv.delimiter().front(), .given = DecimalOf(csv.decimal())};
}

std::optional<CsvDecimal> DecimalOf(config::Csv::Decimal decimal) {
  switch (decimal) {
    case config::Csv::FOUND:
      return std::nullopt;
    case config::Csv::POINT:
      return CsvDecimal::kPoint;
    case config::Csv::COMMA:
      return CsvDecimal::kComma;
    case config::Csv::COMMA_AND_POINTS:
      return CsvDecimal::kCommaAndPoints;
  }
  throw BugError("data.csv.decimal {}", static_cast<int>(decimal));
}

config::Csv::Decimal DecimalOf(CsvDecimal decimal) {
  switch (decimal) {
    case CsvDecimal::kPoint:
      return config::Csv::POINT;
    case CsvDecimal::kComma:
      return config::Csv::COMMA;
    case CsvDecimal::kCommaAndPoints:
      return config::Csv::COMMA_AND_POINTS;
  }
  throw BugError("a decimal sign {}", static_cast<int>(decimal));
}

std::vector<CsvColumn> ColumnsOf(const config::Csv& csv) {
  std::vector<CsvColumn> columns;
  for (const config::Csv::Column& kept : csv.column()) columns.push_back(ColumnOf(kept));
  return columns;
}

void Keep(const CsvColumn& column, config::Csv& csv) {
  config::Csv::Column& kept = *csv.add_column();
  if (!column.name.empty()) kept.set_name(column.name);
  if (column.is_category()) {
    kept.mutable_category()->Assign(column.categories.begin(), column.categories.end());
    if (column.has_rare) kept.set_rare(true);
    return;
  }
  if (column.dates != CsvDates::kNone) {
    kept.set_dates(column.dates == CsvDates::kTimes ? config::Csv::Column::TIMES
                                                    : config::Csv::Column::DAYS);
  }
  if (column.missing_indicator) kept.set_missing_indicator(true);
  if (column.decimal != CsvDecimal::kPoint) kept.set_decimal(DecimalOf(column.decimal));
  if (!KeepsMoments(csv)) return;
  kept.set_mean(column.mean);
  kept.set_std(column.std);
  if (csv.scaling() == config::Csv::ROBUST || csv.scaling() == config::Csv::QUANTILE) {
    kept.set_median(column.median);
  }
  if (csv.scaling() == config::Csv::ROBUST) kept.set_quartile_range(column.quartile_range);
  kept.mutable_quantile()->Assign(column.quantiles.begin(), column.quantiles.end());
}

}  // namespace lockstep
