#include "data/tables/csv.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/dataset/inferred_classes.h"
#include "data/tables/csv_date.h"
#include "data/tables/csv_files.h"
#include "data/tables/csv_fit.h"
#include "data/tables/csv_rows.h"
#include "data/tables/csv_scaling.h"
#include "data/tables/csv_spelling.h"

namespace lockstep {
namespace {

using Kind = CsvRole::Kind;

// Converts the rows of the files to samples.
class Encoder {
 public:
  Encoder(const CsvOptions& options, const CsvFiles& files, const CsvFit& fit)
      : options_(options),
        files_(files),
        fit_(fit),
        class_index_(fit.classes, options.decimal_rule()) {}

  CsvRows Encode() {
    if (std::ranges::any_of(fit_.columns, &CsvColumn::is_category)) {
      for (const CsvColumn& column : fit_.columns) {
        category_index_.emplace_back(column.categories, options_.decimal_rule());
      }
    }
    // If fit_.columns is empty, because nothing was fitted, all feature columns are numbers.
    const int64_t columns = files_.front().layout.features();
    cells_begin_.resize(columns);
    for (int64_t i = 0; i < columns; ++i) {
      cells_begin_[i] = width_;
      width_ += fit_.columns.empty() ? 1 : CellsOf(fit_.columns[i]);
    }
    if (in_training() && options_.held_back_rows) {
      held_back_ = options_.held_back_rows();
      std::ranges::sort(held_back_);
    }
    CsvRows rows;
    rows.remarks = files_.remarks();
    std::ranges::copy(fit_.remarks, std::back_inserter(rows.remarks));
    Reserve(rows);
    size_t number = 0;
    for (const CsvFile& file : files_) {
      if (!fit_.file_decimals.empty()) decimals_ = fit_.file_decimals[number++];
      for (CsvCells cells = files_.RowsOf(file); cells.NextRow();) AddRow(rows, file, cells);
    }
    AddRemarkOnUnknown(rows);
    return rows;
  }

  int64_t ClassesOf(const CsvRows& rows) const {
    if (options_.task != Task::kClassification) return options_.LabelCount();
    if (options_.label_names) {
      const auto names = static_cast<int64_t>(fit_.classes.size());
      if (options_.classes > 0 && options_.classes != names) {
        throw DataError("{}: {} labels where data.classes is {}", files_.front().path, names,
                        options_.classes);
      }
      return names;
    }
    if (options_.classes > 0) return options_.classes;
    return 1 + *std::max_element(rows.labels.begin(), rows.labels.end());
  }

 private:
  // Reserves memory for as many rows as the files can have.
  void Reserve(CsvRows& rows) const {
    int64_t cells = 0;
    int64_t lines = 0;
    for (const CsvFile& file : files_) {
      const std::string_view text = file.text();
      const auto bytes = static_cast<int64_t>(text.size());
      const int64_t lines_here = 1 + std::count(text.begin(), text.end(), '\n');
      // Nearly all cells of a file take at least two bytes, including the delimiter, so the size of the file limits the
      // number of cells.
      const int64_t columns = file.layout.features();
      cells += std::min(lines_here * columns, 1 + bytes / 2) * width_ / columns;
      lines += lines_here;
    }
    rows.cells.reserve(cells);
    if (options_.task == Task::kClassification) {
      rows.labels.reserve(lines);
    } else {
      rows.targets.reserve(std::min(lines * options_.LabelCount(), cells));
    }
  }

  void AddRow(CsvRows& rows, const CsvFile& file, CsvCells& cells) {
    const size_t begin = rows.cells.size();
    row_is_unknown_ = row_lacks_text_ = false;
    row_is_counted_ = IsCounted(rows.count);
    rows.cells.resize(begin + width_);
    float* row = rows.cells.data() + begin;
    AddNoLabel(rows);
    VisitRow(file, cells, [&](const CsvPlace& place, const CsvRole& role) {
      switch (role.kind) {
        case Kind::kNumber:
          WriteNumber(place, role, row + cells_begin_[role.index]);
          break;
        case Kind::kDate:
          WriteDate(place, role.index, row + cells_begin_[role.index]);
          break;
        case Kind::kCategory:
          row[cells_begin_[role.index]] = CategoryPlace(place, role.index);
          break;
        case Kind::kLabel:
          SetLabel(rows, place, role);
          break;
        case Kind::kIgnored:
          break;
      }
    });
    ++rows.count;
    if (row_is_unknown_) ++unknown_rows_;
    if (row_lacks_text_) ++lacking_rows_;
  }

  bool in_training() const { return options_.features == 0; }

  // Returns whether the remarks of AddRemarkOnUnknown() count the row. The rows are passed in ascending order.
  bool IsCounted(int64_t row) {
    if (!in_training()) return true;
    if (next_held_back_ == held_back_.size() || held_back_[next_held_back_] != row) return false;
    ++next_held_back_;
    return true;
  }

  // Adds lines that tell how many rows have a text that no training row had, or lack one that all training rows had.
  // In training files only the rows that are held back can be such rows.
  void AddRemarkOnUnknown(CsvRows& rows) const {
    const std::string of = in_training()
                               ? fmt::format("of {} rows {}", held_back_.size(), options_.held_back)
                               : fmt::format("of {} rows", rows.count);
    if (lacking_rows_ > 0) {
      rows.remarks.push_back(fmt::format("{}: {} {} lack a text that all training rows had, in {}",
                                         files_.front().path, lacking_rows_, of, first_lacking_));
    }
    if (unknown_rows_ == 0) return;
    rows.remarks.push_back(fmt::format("{}: {} {} hold texts that no training row had{}",
                                       files_.front().path, unknown_rows_, of, first_unknown_));
  }

  // Returns the decimal sign of the cell's column in its file: DecimalOf() always, and OwnDecimal() if the signs of
  // this file were looked for.
  CsvDecimal DecimalOf(const CsvPlace& place, const CsvRole& role) const {
    return OwnDecimal(place).value_or(fit_.DecimalOf(role));
  }
  std::optional<CsvDecimal> OwnDecimal(const CsvPlace& place) const {
    return decimals_.empty() ? std::nullopt : std::optional(decimals_[place.column]);
  }

  void WriteNumber(const CsvPlace& place, const CsvRole& role, float* cells) const {
    const CsvDecimal decimal = DecimalOf(place, role);
    if (options_.scaling != CsvScaling::kNone) {
      double number = 0;
      const bool is_there = ReadNumber(options_, place, decimal, number);
      return WriteScaled(place, fit_.columns[role.index], is_there, number, cells);
    }
    const bool is_there = ReadNumber(options_, place, decimal, cells[0]);
    if (!is_there) cells[0] = static_cast<float>(fit_.columns[role.index].mean);
    cells[0] *= options_.scale;
    RequireFinite(place, cells[0]);
    if (!fit_.columns.empty() && fit_.columns[role.index].missing_indicator) {
      cells[1] = is_there ? 0 : 1;
    }
  }

  void WriteDate(const CsvPlace& place, int64_t index, float* cells) const {
    const CsvColumn& column = fit_.columns[index];
    CsvDate date;
    const bool is_there = ReadDate(options_, place, date);
    WriteScaled(place, column, is_there, date.days, cells);
    float* circles = cells + (column.missing_indicator ? 2 : 1);
    if (is_there) {
      WriteDateCircles(column.dates, date.local_days, circles);
    } else {
      std::fill_n(circles, DateCircleNumbers(column.dates), 0.0F);
    }
  }

  // Writes the scaled number or, if `is_there` is false, the scaled replacement; then the missing indicator if there is
  // one.
  void WriteScaled(const CsvPlace& place, const CsvColumn& column, bool is_there, double number,
                   float* cells) const {
    const double value = is_there ? number : ValueIfMissing(options_.scaling, column);
    const double scaled = Scaled(options_.scaling, column, value);
    const bool is_plain = options_.scaling == CsvScaling::kNone;
    cells[0] = static_cast<float>(is_plain ? scaled * options_.scale : scaled);
    RequireFinite(place, cells[0]);
    if (column.missing_indicator) cells[1] = is_there ? 0 : 1;
  }

  static void RequireFinite(const CsvPlace& place, float number) {
    if (std::isfinite(number)) return;
    FailAt(place, fmt::format("{} is too great a number once it is scaled", Quoted(place.text())));
  }

  // Returns the index of the cell's text among the categories of feature column `index`. For any other text, returns
  // the index after the last category if the column has a feature for rare texts, and otherwise -1.
  float CategoryPlace(const CsvPlace& place, int64_t index) {
    const CsvColumn& column = fit_.columns[index];
    // A run of an older version may have a category, such as None, whose text stands for a missing value today.
    int64_t found = category_index_[index].FindSame(place.text());
    if (found >= 0) return static_cast<float>(found);
    const std::string_view text = CategoryIn(options_, place);
    found = category_index_[index].Find(text, OwnDecimal(place));
    if (found >= 0) return static_cast<float>(found);
    if (column.has_rare) return static_cast<float>(column.categories.size());
    NoteUnknown(place, text.empty());
    return -1.0F;
  }

  void NoteUnknown(const CsvPlace& place, bool is_missing) {
    if (!row_is_counted_) return;
    (is_missing ? row_lacks_text_ : row_is_unknown_) = true;
    std::string& first = is_missing ? first_lacking_ : first_unknown_;
    if (!first.empty()) return;
    const std::string column = place.layout.NameOf(place.column);
    first = is_missing ? column : fmt::format(", such as {} in {}", Quoted(place.text()), column);
  }

  // Sets the label of the last row in the column with the role `role`, unless the label is missing and optional.
  void SetLabel(CsvRows& rows, const CsvPlace& place, const CsvRole& role) const {
    const bool has_texts = !options_.HasNumberLabels();
    const bool is_missing = has_texts ? IsMissingText(place.text()) : IsMissing(place.text());
    if (options_.label_optional && is_missing) return;
    if (options_.task != Task::kClassification) {
      rows.targets.end()[role.index - options_.LabelCount()] =
          TargetIn(options_, place, DecimalOf(place, role));
    } else if (has_texts) {
      const int64_t found = class_index_.Find(ClassNameIn(place), OwnDecimal(place));
      if (found < 0) {
        FailAt(place, fmt::format("label {} is none of those in training (data.csv.classes)",
                                  Quoted(place.text())));
      }
      rows.labels.back() = found;
    } else {
      rows.labels.back() = ClassIn(options_, place, DecimalOf(place, role));
    }
  }

  void AddNoLabel(CsvRows& rows) const {
    if (options_.task == Task::kClassification) {
      rows.labels.push_back(Dataset::kNoLabel);
    } else {
      rows.targets.resize(rows.targets.size() + options_.LabelCount(),
                          std::numeric_limits<float>::quiet_NaN());
    }
  }

  const CsvOptions& options_;
  const CsvFiles& files_;
  const CsvFit& fit_;
  int64_t width_ = 0;                 // the number of elements of CsvRows::cells for a row
  std::vector<int64_t> cells_begin_;  // the index of each feature column's first element
  // The index of each feature column's categories; empty if there are no categories.
  std::vector<TextIndex> category_index_;
  TextIndex class_index_;
  std::vector<CsvDecimal> decimals_;  // CsvFit::file_decimals of the file that is being read
  // Whether the row holds a text that no training row had, and whether it lacks one that all training rows had.
  bool row_is_counted_ = true;  // by AddRemarkOnUnknown()
  bool row_is_unknown_ = false;
  bool row_lacks_text_ = false;
  std::vector<int64_t> held_back_;  // CsvOptions::held_back_rows() of training files
  size_t next_held_back_ = 0;
  int64_t unknown_rows_ = 0;
  int64_t lacking_rows_ = 0;
  std::string first_unknown_;  // the first such text, in words
  std::string first_lacking_;  // the first column that lacks a text
};

std::vector<std::string> LabelNames(const CsvOptions& options, const CsvLayout& layout) {
  if (!options.labels.empty() || layout.header.empty()) return options.labels;
  std::vector<std::string> names(options.LabelCount());
  for (size_t i = 0; i < layout.roles.size(); ++i) {
    const CsvRole& role = layout.roles[i];
    if (role.kind == Kind::kLabel) names[role.index] = layout.header[i];
  }
  return names;
}

}  // namespace

CsvTable ReadCsv(const CsvOptions& options) {
  RequireFitted(options);
  const CsvFiles files(options);
  const CsvFit fit = FitCsv(options, files);
  Encoder encoder(options, files, fit);
  CsvRows rows = encoder.Encode();
  for (const CsvFile& file : files) rows.files.AddFile(file.path, file.text());
  if (options.task == Task::kClassification && options.classes == 0 && !options.label_names) {
    std::ranges::copy(
        RemarksOnLabels<int64_t>(options.files.front(), rows.labels, "data.csv.label_names: true"),
        std::back_inserter(rows.remarks));
  }
  SampleSpec spec{.classes = encoder.ClassesOf(rows),
                  .class_names = fit.classes,
                  .task = options.task,
                  .categories = FeaturesOfCategories(fit.columns)};
  return {.dataset = MakeCsvDataset(std::move(spec), std::move(rows), fit.columns),
          .columns = fit.columns,
          .label_decimals = fit.label_decimals,
          .labels = LabelNames(options, files.front().layout)};
}

}  // namespace lockstep
