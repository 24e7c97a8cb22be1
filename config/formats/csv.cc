// The format CSV: tables with label columns.
#include "data/tables/csv.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "config/formats/csv_columns.h"
#include "config/formats/division.h"
#include "config/formats/format.h"
#include "config/schema/fields.h"
#include "data/tables/csv_spelling.h"
#include "data/tables/csv_texts.h"

namespace lockstep {
namespace {

// Checks that `columns` are column numbers. A config for files without a header must give numbers, because their
// columns have no names.
void RequireNumbers(const FieldCheck& check, const std::string& name,
                    const FieldCheck::Texts& columns) {
  for (const std::string& column : columns) {
    if (!column.empty() && column.find_first_not_of("0123456789") == std::string::npos) continue;
    check.Fail(name, fmt::format("\"{}\" is no column's number (from 0): names need "
                                 "data.csv.header: true",
                                 column));
  }
}

std::vector<CsvDecimal> LabelDecimalsOf(const config::Csv& csv) {
  std::vector<CsvDecimal> decimals;
  for (const int decimal : csv.label_decimal()) {
    decimals.push_back(
        DecimalOf(static_cast<config::Csv::Decimal>(decimal)).value_or(CsvDecimal::kPoint));
  }
  return decimals;
}

// Returns what a line says of rows that are held back.
std::string HeldBackWords(const config::Data& data) {
  if (data.folds().count() == 0) return "held back";
  return fmt::format("that fold {} holds back", data.folds().fold());
}

CsvOptions CsvOptionsFor(const OpenRequest& request) {
  const config::Csv& csv = request.config.data().csv();
  const SampleSpec& expected = request.expected;
  return {.files = request.files,
          .delimiter = csv.delimiter()[0],
          .header = csv.header(),
          .labels = ListOf(csv.label()),
          .label_column = csv.label_column(),
          .label_columns = csv.label_columns(),
          .ignore = ListOf(csv.ignore()),
          .category = ListOf(csv.category()),
          .date = ListOf(csv.date()),
          .category_min_rows = csv.category_min_rows(),
          .mean_if_missing = csv.missing() == config::Csv::MEAN,
          .missing_indicator = csv.missing_indicator(),
          .scaling = ScalingOf(csv),
          .scale = static_cast<float>(csv.scale()),
          .decimal = DecimalOf(csv.decimal()),
          .task = expected.task,
          .label_names = csv.label_names(),
          .class_names = expected.class_names,
          .classes = expected.classes,
          .columns = ColumnsOf(csv),
          .label_decimals = LabelDecimalsOf(csv),
          .held_back = HeldBackWords(request.config.data()),
          .features = expected.shape.empty() ? 0 : expected.shape[0],
          .label_optional = request.label_optional};
}

// Stores in `csv` the columns, the class names and the label columns that the training files had, so that
// CsvOptionsFor() can open other files of the run in the same way.
void Keep(const CsvTable& table, config::Csv& csv) {
  csv.clear_column();
  for (const CsvColumn& column : table.columns) Keep(column, csv);
  const std::vector<std::string>& classes = table.dataset->spec().class_names;
  csv.mutable_classes()->Assign(classes.begin(), classes.end());
  csv.clear_label_decimal();
  for (const CsvDecimal decimal : table.label_decimals) csv.add_label_decimal(DecimalOf(decimal));
  if (table.labels.empty()) return;
  csv.mutable_label()->Assign(table.labels.begin(), table.labels.end());
  csv.set_label_column(config::Csv().label_column());
  csv.set_label_columns(config::Csv().label_columns());
}

// Returns whether the config has the statistics that the scaling needs for `column`, which holds numbers or dates. The
// comparisons are written so that NaN counts as missing.
bool HasScale(const config::Csv& csv, const config::Csv::Column& column) {
  if (!KeepsMoments(csv)) return true;
  if (!column.has_mean() || !std::isfinite(column.mean()) || !(column.std() > 0)) return false;
  switch (csv.scaling()) {
    case config::Csv::NONE:
    case config::Csv::STANDARD:
      return true;
    case config::Csv::ROBUST:
      return column.has_median() && std::isfinite(column.median()) && column.quartile_range() > 0;
    case config::Csv::QUANTILE: {
      const auto& quantiles = column.quantile();
      return column.has_median() && std::isfinite(column.median()) && !quantiles.empty() &&
             std::ranges::all_of(quantiles, [](double number) { return std::isfinite(number); }) &&
             std::ranges::is_sorted(quantiles);
    }
  }
  return true;
}

class Tables : public Format {
 public:
  bool Has(config::Data::Task task) const override { return task != config::Data::SEGMENTATION; }

  void Check(const FieldCheck& check) const override {
    const config::Data& data = check.config().data();
    const config::Csv& csv = data.csv();
    if (csv.delimiter().size() != 1 ||
        csv.delimiter().find_first_of(std::string_view("\"\n\r\0", 4)) != std::string::npos) {
      check.Fail("data.csv.delimiter", "give one character that is no quote and no line break");
    }
    if (!csv.header() && !csv.label().empty()) {
      check.Fail("data.csv.label",
                 "needs data.csv.header: true; without a header set label_column");
    }
    if (!csv.label().empty() && csv.label_column() != config::Csv().label_column()) {
      check.Fail("data.csv.label_column", "data.csv.label is given too: choose one of the two");
    }
    if (!csv.label().empty() && csv.label_columns() != config::Csv().label_columns()) {
      check.Fail("data.csv.label_columns",
                 "data.csv.label is given too: name all label columns there");
    }
    check.RequireDistinct("data.csv.label", csv.label());
    if (!csv.header()) {
      RequireNumbers(check, "data.csv.ignore", csv.ignore());
      RequireNumbers(check, "data.csv.category", csv.category());
      RequireNumbers(check, "data.csv.date", csv.date());
    }
    if (csv.scale() == 0) check.Fail("data.csv.scale", "is 0: each number would be 0");
    if (csv.scaling() != config::Csv::NONE && csv.scale() != config::Csv().scale()) {
      check.Fail("data.csv.scale", "has no meaning with data.csv.scaling");
    }
    if (csv.missing_indicator() && csv.missing() != config::Csv::MEAN) {
      check.Fail("data.csv.missing_indicator", "needs data.csv.missing: MEAN");
    }
    if (csv.category_min_rows() > 1 && csv.category().empty()) {
      check.Fail("data.csv.category_min_rows", "needs data.csv.category");
    }
    if (csv.label_names() && data.task() != config::Data::CLASSIFICATION) {
      check.Fail("data.csv.label_names", "is for CLASSIFICATION");
    }
    if (!csv.label_names() && csv.classes_size() > 0) {
      check.Fail("data.csv.classes", "needs data.csv.label_names: true");
    }
    check.RequireDistinct("data.csv.classes", csv.classes());
    const int64_t labels = csv.label_size() > 0 ? csv.label_size() : csv.label_columns();
    if (csv.label_decimal_size() > 0 && csv.label_decimal_size() != labels) {
      check.Fail("data.csv.label_decimal", "is for each label column: leave it out");
    }
    for (int i = 0; i < csv.column_size(); ++i) {
      const config::Csv::Column& column = csv.column(i);
      check.RequireDistinct("data.csv.column", column.category());
      if (column.category_size() > 0 || column.rare() || HasScale(csv, column)) continue;
      const std::string name = column.has_name() ? fmt::format("\"{}\"", column.name())
                                                 : fmt::format("number {} of them", i);
      check.Fail(
          "data.csv.column",
          name + " has not what data.csv.missing and scaling need: leave out data.csv.column");
    }
    CheckLabels(check);
  }

  std::shared_ptr<const Dataset> Open(const OpenRequest& request) const override {
    return ReadCsv(CsvOptionsFor(request)).dataset;
  }

  TrainingFiles OpenForTraining(const OpenRequest& request, config::Data& found) const override {
    CsvOptions options = CsvOptionsFor(request);
    std::optional<Split> split;
    const auto divide = [&](int64_t rows) { split = DivideRows(request, options, rows); };
    if (HoldsBack(request.config.data())) {
      options.training_rows = [&](int64_t rows) {
        divide(rows);
        return split->train;
      };
      options.held_back_rows = [&] { return split ? split->validation : std::vector<int64_t>(); };
    }
    const CsvTable table = ReadCsv(options);
    // If statistics had to be fitted to the training rows, ReadCsv() has already called divide(), which sets `split`.
    if (!split) divide(table.dataset->size());
    Keep(table, *found.mutable_csv());
    return {.samples = table.dataset, .split = std::move(split)};
  }

  std::vector<std::vector<std::string>> ReadColumns(const OpenRequest& request,
                                                    const std::vector<std::string>& columns,
                                                    std::string_view field) const override {
    return ReadCsvTexts(CsvOptionsFor(request), columns, field);
  }

  void Describe(const config::Data& data, SampleSpec& spec) const override {
    spec.class_names = ListOf(data.csv().classes());
    spec.categories = FeaturesOfCategories(ColumnsOf(data.csv()));
  }

 private:
  static bool HoldsBack(const config::Data& data) {
    return data.validation_fraction() > 0 || data.folds().count() > 0;
  }

  std::optional<Split> DivideRows(const OpenRequest& request, const CsvOptions& options,
                                  int64_t rows) const {
    // A group or a class is one, however its number is spelled.
    const auto numbers_of = [&](std::vector<std::string> texts) {
      UnifySpellings(texts, options.decimal_rule());
      return NumbersOfTexts(texts);
    };
    DivisionKeys keys{.groups = [&] {
      return numbers_of(std::move(
          ReadColumns(request, {request.config.data().folds().group()}, "data.folds.group")
              .front()));
    }};
    if (options.task == Task::kClassification) {
      keys.classes = [&] { return numbers_of(ReadCsvLabels(options)); };
    }
    return Divide(request.config, rows, keys);
  }

  // Checks that the number of label columns fits the task and data.classes.
  static void CheckLabels(const FieldCheck& check) {
    const config::Data& data = check.config().data();
    const bool by_name = data.csv().label_size() > 0;
    const int64_t labels = by_name ? data.csv().label_size() : data.csv().label_columns();
    const bool has_classes = data.task() == config::Data::CLASSIFICATION;
    if (has_classes && labels != 1) {
      check.Fail(by_name ? "data.csv.label" : "data.csv.label_columns",
                 "CLASSIFICATION has one: set data.task to MULTI_LABEL or REGRESSION");
    }
    if (!has_classes && data.classes() != 0 && data.classes() != labels) {
      check.Fail("data.classes",
                 fmt::format("is {} where data.csv.label{}: leave it out", data.classes(),
                             by_name ? fmt::format(" names {}", labels)
                                     : fmt::format("_columns is {}", labels)));
    }
  }
};

}  // namespace

std::unique_ptr<const Format> NewTables() { return std::make_unique<Tables>(); }

}  // namespace lockstep
