#include "data/tables/csv_fit.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/moments.h"
#include "data/dataset/inferred_classes.h"
#include "data/tables/csv_date.h"
#include "data/tables/csv_scaling.h"
#include "data/tables/csv_spelling.h"

namespace lockstep {
namespace {

using Kind = CsvRole::Kind;

// The greatest number of categories of a column. A column with more categories is refused as a mistake.
constexpr size_t kMaxCategories = 10000;

// The greatest number of different texts of a column that are counted, if rare texts become one category. This number
// of texts takes some 100 MB of memory.
constexpr size_t kMaxCountedTexts = 1000000;

// The greatest number of quantiles of all columns together. A run's config holds all quantiles, and this limit keeps
// the config at a few megabytes at most.
constexpr size_t kMostKeptQuantiles = 200000;

// The values of a column of numbers or dates in the training rows that were read so far.
struct NumbersSeen {
  Moments moments;
  std::vector<double> values;  // all numbers, if the scaling needs them
  bool lacks_some = false;
  bool has_times = false;
};

bool FitsNumbers(const CsvOptions& options) {
  return options.scaling != CsvScaling::kNone || options.mean_if_missing || !options.date.empty();
}

// Returns whether CsvFit::columns must be known to read other files in the same way as the training files.
bool KnowsColumns(const CsvOptions& options) {
  return options.header || FitsNumbers(options) || !options.category.empty();
}

class Fitter {
 public:
  Fitter(const CsvOptions& options, const CsvFiles& files)
      : options_(options),
        files_(files),
        fit_{.columns = options.columns,
             .classes = options.class_names,
             .label_decimals = options.label_decimals} {}

  CsvFit Fit() && {
    const bool fits_classes = options_.label_names && fit_.classes.empty();
    FindDecimals();
    if (further_remarks_ > 0) {
      fit_.remarks.push_back(fmt::format("{}: {} further columns hold such numbers",
                                         files_.front().path, further_remarks_));
    }
    const bool fits_columns =
        (KnowsColumns(options_) || !decimals_.empty()) && fit_.columns.empty();
    if (fits_columns) {
      NameColumns();
      if (FitsNumbers(options_)) numbers_.resize(fit_.columns.size());
      if (!options_.category.empty()) categories_.resize(fit_.columns.size());
    }
    if (fits_classes || !numbers_.empty() || !categories_.empty()) {
      files_.VisitRows([&](const CsvPlace& place, const CsvRole& role, bool in_training) {
        // The classes are taken from all rows, because a held-back row may have a class that no training row has.
        if (role.kind == Kind::kLabel && fits_classes) AddClass(place);
        if (!in_training) return;
        const bool is_number = role.kind == Kind::kNumber || role.kind == Kind::kDate;
        if (is_number && !numbers_.empty()) AddNumber(place, role);
        if (role.kind == Kind::kCategory && !categories_.empty()) AddCategory(place, role);
      });
    }
    if (!numbers_.empty()) KeepNumbers();
    for (size_t i = 0; i < categories_.size(); ++i) KeepCategories(i);
    if (fits_classes) KeepClasses();
    CheckColumns();
    return std::move(fit_);
  }

 private:
  void NameColumns() {
    const CsvLayout& layout = files_.front().layout;
    fit_.columns.resize(layout.features());
    for (size_t i = 0; i < layout.header.size(); ++i) {
      const CsvRole& role = layout.roles[i];
      if (IsFeature(role)) fit_.columns[role.index].name = layout.header[i];
    }
    for (size_t i = 0; i < decimals_.size(); ++i) fit_.columns[i].decimal = decimals_[i];
  }

  // Adds a remark for each column whose numbers are not in C's spelling, and in training files sets decimals_ and
  // fit_.label_decimals if a column has another decimal sign than a point.
  void FindDecimals() {
    const bool in_training = options_.features == 0;
    if (in_training && !fit_.columns.empty()) return;  // a resumed run knows its columns
    const bool may_have_commas =
        options_.decimal || std::ranges::any_of(fit_.columns, [](const CsvColumn& column) {
          return column.decimal != CsvDecimal::kPoint;
        });
    if (!may_have_commas && std::ranges::none_of(files_, [&](const CsvFile& file) {
          return MayHaveFormattedNumbers(file.text(), file.delimiter);
        })) {
      return;
    }
    if (in_training) return FindTrainingDecimals();
    for (const CsvFile& file : files_) {
      std::vector<DecimalSigns> signs(file.layout.roles.size());
      AddSigns(file, signs);
      const std::vector<CsvDecimal> alone = DecimalRule{.delimiter = file.delimiter}.ForAll(signs);
      std::vector<CsvDecimal>& decimals = fit_.file_decimals.emplace_back(signs.size());
      for (size_t i = 0; i < signs.size(); ++i) {
        const CsvRole& role = file.layout.roles[i];
        if (!HoldsNumbers(role) && !IsCompared(role)) continue;
        const CsvDecimal trained = TrainedDecimalOf(role);
        const bool has_own = !options_.decimal && signs[i].others() == 0 &&
                             !signs[i].Fits(trained) && signs[i].Fits(alone[i]);
        decimals[i] = has_own ? alone[i] : trained;
        if (!has_own && !HoldsNumbers(role)) continue;
        AddRemark(file, i, signs[i], decimals[i],
                  has_own ? fmt::format(", with the decimal {} of this file",
                                        alone[i] == CsvDecimal::kPoint ? "point" : "comma")
                          : HowAlone(signs[i], trained, alone[i]));
      }
    }
  }

  // Training files have the same columns. All their rows are read, because the rest of a column may decide what a comma
  // means.
  void FindTrainingDecimals() {
    const CsvFile& first = files_.front();
    std::vector<DecimalSigns> signs(first.layout.roles.size());
    for (const CsvFile& file : files_) AddSigns(file, signs);
    const std::vector<CsvDecimal> found = options_.decimal_rule().ForAll(signs);
    std::vector<CsvDecimal> features(first.layout.features());
    std::vector<CsvDecimal> labels(options_.LabelCount());
    for (size_t i = 0; i < signs.size(); ++i) {
      const CsvRole& role = first.layout.roles[i];
      if (!HoldsNumbers(role)) continue;
      const CsvDecimal decimal = found[i];
      (role.kind == Kind::kLabel ? labels : features)[role.index] = decimal;
      AddRemark(first, i, signs[i], decimal, options_.decimal ? "" : HowElse(signs[i], decimal));
    }
    const auto has_comma = [](CsvDecimal decimal) { return decimal != CsvDecimal::kPoint; };
    if (std::ranges::any_of(features, has_comma)) decimals_ = std::move(features);
    if (std::ranges::any_of(labels, has_comma)) fit_.label_decimals = std::move(labels);
  }

  // Adds the cells of all columns of a file, also of those that are left out: they tell which sign the file has.
  void AddSigns(const CsvFile& file, std::vector<DecimalSigns>& signs) const {
    for (CsvCells cells = files_.RowsOf(file); cells.NextRow();) {
      VisitRow(file, cells, [&](const CsvPlace& place, const CsvRole&) {
        signs[place.column].Add(place.text());
      });
    }
  }

  // Returns whether a column's texts, which may be numbers, are compared with those of training.
  bool IsCompared(const CsvRole& role) const {
    return role.kind == Kind::kCategory ||
           (role.kind == Kind::kLabel && !options_.HasNumberLabels());
  }

  // Returns the decimal sign that a column has in training.
  CsvDecimal TrainedDecimalOf(const CsvRole& role) const {
    if (!IsCompared(role)) return fit_.DecimalOf(role);
    const std::vector<std::string>& texts =
        role.kind == Kind::kCategory ? fit_.columns[role.index].categories : fit_.classes;
    return ColumnKeys(texts, options_.decimal_rule()).decimal();
  }

  // Returns an aside for HowRead() if a file that is no training file would by itself be read otherwise.
  static std::string HowAlone(const DecimalSigns& signs, CsvDecimal decimal,
                              CsvDecimal alone_decimal) {
    const std::string& example = signs.Example(decimal);
    double number = 0, alone = 0;
    const bool differ = ParseNumber(example, decimal, number) &&
                        ParseNumber(example, alone_decimal, alone) && number != alone;
    return differ ? fmt::format(", as in training; by this file alone it would be {}", alone) : "";
  }

  bool HoldsNumbers(const CsvRole& role) const {
    return role.kind == Kind::kNumber || (role.kind == Kind::kLabel && options_.HasNumberLabels());
  }

  // Adds a line that tells how the formatted numbers of a column are read, if there are any.
  void AddRemark(const CsvFile& file, size_t column, const DecimalSigns& signs, CsvDecimal decimal,
                 const std::string& aside) {
    constexpr size_t kMostRemarks = 8;
    const std::string how = HowRead(signs, decimal, aside);
    if (how.empty()) return;
    if (fit_.remarks.size() == kMostRemarks) {
      ++further_remarks_;
      return;
    }
    fit_.remarks.push_back(fmt::format("{}: {}: {}", file.path,
                                       file.layout.NameOf(static_cast<int64_t>(column)), how));
  }

  void AddNumber(const CsvPlace& place, const CsvRole& role) {
    NumbersSeen& seen = numbers_[role.index];
    double number = 0;
    CsvDate date;
    const bool is_date = role.kind == Kind::kDate;
    if (!(is_date ? ReadDate(options_, place, date)
                  : ReadNumber(options_, place, fit_.DecimalOf(role), number))) {
      seen.lacks_some = true;
      return;
    }
    if (is_date) number = date.days;
    seen.moments.Add(number);
    seen.has_times = seen.has_times || (is_date && date.has_time());
    const bool needs_values =
        options_.scaling == CsvScaling::kRobust || options_.scaling == CsvScaling::kQuantile;
    if (!needs_values) return;
    seen.values.push_back(number);
    const bool is_kept =
        options_.scaling == CsvScaling::kQuantile && seen.values.size() <= kMostQuantiles;
    if (is_kept && ++quantiles_ > kMostKeptQuantiles) {
      throw DataError(
          "{}: data.csv.scaling: QUANTILE keeps up to {} numbers of each column in the run's "
          "config, and more than {} of all columns are too many: take ROBUST or STANDARD",
          files_.front().path, kMostQuantiles, kMostKeptQuantiles);
    }
  }

  void AddCategory(const CsvPlace& place, const CsvRole& role) {
    TextCounts& counts = categories_[role.index];
    const std::string_view text = CategoryIn(options_, place);
    if (const auto known = counts.find(text); known != counts.end()) {
      ++known->second;
      return;
    }
    const bool has_rare = options_.category_min_rows > 1;
    if (counts.size() == (has_rare ? kMaxCountedTexts : kMaxCategories)) {
      FailAt(place,
             fmt::format("more than {} {}: if it tells rows apart, add \"{}\" to data.csv.ignore{}",
                         counts.size(), has_rare ? "different texts" : "categories",
                         place.layout.Reference(place.column),
                         has_rare ? "" : ", else set data.csv.category_min_rows"));
    }
    counts.emplace(text, 1);
  }

  // Throws Error (kData), which says `what` about feature column `index`. `cure` is a format string for the advice, and
  // its argument is the name that options use for the column.
  [[noreturn]] void FailColumn(size_t index, const std::string& what, const char* cure) const {
    const CsvLayout& layout = files_.front().layout;
    const auto found = std::ranges::find_if(layout.roles, [&](const CsvRole& role) {
      return IsFeature(role) && role.index == static_cast<int32_t>(index);
    });
    const int64_t column = found - layout.roles.begin();
    throw DataError("{}: {}: {}: {}", files_.front().path, layout.NameOf(column), what,
                    fmt::format(fmt::runtime(cure), layout.Reference(column)));
  }

  void KeepCategories(size_t index) {
    if (categories_[index].empty()) return;
    CsvColumn& column = fit_.columns[index];
    MergeSpellings(categories_[index], options_.decimal_rule());
    for (const auto& [text, count] : categories_[index]) {
      if (count >= options_.category_min_rows) {
        column.categories.push_back(text);
      } else {
        column.has_rare = true;
      }
    }
    if (column.categories.size() > kMaxCategories) {
      FailColumn(
          index,
          fmt::format("{} categories, more than {}", column.categories.size(), kMaxCategories),
          "set a greater data.csv.category_min_rows, or add \"{}\" to data.csv.ignore");
    }
    if (column.categories.empty()) {
      FailColumn(index,
                 fmt::format("no text is in {} training rows or more", options_.category_min_rows),
                 "set a lower data.csv.category_min_rows, or add \"{}\" to data.csv.ignore");
    }
  }

  void AddClass(const CsvPlace& place) {
    const std::string_view text = ClassNameIn(place);
    if (const auto known = classes_.find(text); known != classes_.end()) {
      ++known->second;
      return;
    }
    if (static_cast<int64_t>(classes_.size()) == kMaxInferredClasses) {
      FailAt(place, fmt::format("more than {} classes", classes_.size()));
    }
    classes_.emplace(text, 1);
  }

  void KeepClasses() {
    MergeSpellings(classes_, options_.decimal_rule());
    for (const auto& [text, count] : classes_) fit_.classes.push_back(text);
  }

  void KeepNumbers() {
    const CsvLayout& layout = files_.front().layout;
    for (size_t i = 0; i < layout.roles.size(); ++i) {
      const CsvRole& role = layout.roles[i];
      const bool is_date = role.kind == Kind::kDate;
      if (role.kind != Kind::kNumber && !is_date) continue;
      NumbersSeen& seen = numbers_[role.index];
      if (seen.moments.count() == 0) {
        const auto column = static_cast<int64_t>(i);
        throw DataError("{}: {}: no training row has a {} there: add \"{}\" to data.csv.ignore",
                        files_.front().path, layout.NameOf(column), is_date ? "date" : "number",
                        layout.Reference(column));
      }
      CsvColumn& column = fit_.columns[role.index];
      column.mean = seen.moments.mean();
      column.std = seen.moments.std();
      column.missing_indicator = options_.missing_indicator && seen.lacks_some;
      if (is_date) column.dates = seen.has_times ? CsvDates::kTimes : CsvDates::kDays;
      FitScaling(options_.scaling, seen.values, column);
      seen.values = {};
    }
  }

  // Throws Error (kData) if the kinds or the names of fit_.columns differ from those of the files' columns.
  void CheckColumns() const {
    if (fit_.columns.empty()) return;
    for (const CsvFile& file : files_) {
      bool same = static_cast<int64_t>(fit_.columns.size()) == file.layout.features();
      for (size_t i = 0; same && i < file.layout.roles.size(); ++i) {
        const CsvRole& role = file.layout.roles[i];
        if (!IsFeature(role)) continue;
        const CsvColumn& column = fit_.columns[role.index];
        same = KindOf(column) == role.kind &&
               (!options_.header || column.name == file.layout.header[i]);
      }
      if (!same) {
        throw DataError(
            "{}: data.csv.column is not of these columns and of data.csv.category and date: leave "
            "it out",
            file.path);
      }
    }
  }

  const CsvOptions& options_;
  const CsvFiles& files_;
  CsvFit fit_;
  int64_t further_remarks_ = 0;  // columns of which no remark tells how they are read
  // Each of the two vectors has an element for each feature column. An element of numbers_ describes the column's
  // numbers or dates, and an element of categories_ counts its texts. numbers_ is empty if nothing is fitted to
  // numbers, and categories_ is empty if nothing is fitted to categories.
  std::vector<NumbersSeen> numbers_;
  std::vector<TextCounts> categories_;
  size_t quantiles_ = 0;  // the number of quantiles to keep for the rows that were read so far
  TextCounts classes_;
  std::vector<CsvDecimal> decimals_;  // of each feature column; empty: all have a point
};

}  // namespace

void RequireFitted(const CsvOptions& options) {
  if (options.features == 0) return;
  if (KnowsColumns(options) && options.columns.empty()) {
    throw DataError("{}: data.csv.column does not say what the training files held: train again",
                    options.files.front());
  }
  if (options.header && options.labels.empty()) {
    throw DataError("{}: data.csv.label does not name the training files' labels: train again",
                    options.files.front());
  }
  if (options.label_names && options.class_names.empty()) {
    throw DataError("{}: data.csv.classes does not say the training files' labels: train again",
                    options.files.front());
  }
}

CsvFit FitCsv(const CsvOptions& options, const CsvFiles& files) {
  return Fitter(options, files).Fit();
}

}  // namespace lockstep
