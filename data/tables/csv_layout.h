// CsvLayout: the role of each column of a CSV file (number, date, category, label, ignored).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tables/csv_options.h"

namespace lockstep {

// The role of a column of a file.
struct CsvRole {
  enum class Kind : uint8_t { kNumber, kDate, kCategory, kLabel, kIgnored };
  Kind kind = Kind::kNumber;
  int32_t index = 0;  // the index of the column among the features, or among the labels
};

inline bool IsFeature(const CsvRole& role) {
  return role.kind != CsvRole::Kind::kLabel && role.kind != CsvRole::Kind::kIgnored;
}

// Returns the role that a feature column with the fitted values `trained` had in training.
CsvRole::Kind KindOf(const CsvColumn& trained);

struct CsvLayout {
  std::vector<CsvRole> roles;       // the role of each column of the file
  std::vector<std::string> header;  // the names of the columns; empty: the file has no header
  bool labelled = true;

  int64_t features() const;  // how many columns hold numbers, dates and categories

  // Returns the name of a column for error messages, such as "column 4 (Age)". The number in the name counts from 1,
  // but `column` counts from 0.
  std::string NameOf(int64_t column) const;
  // Returns the text by which options such as `ignore` refer to the column.
  std::string Reference(int64_t column) const;
};

// Finds the column that an option refers to: by its name in the header or, if there is no header, by its number from 0.
// Keeps references to `header` and `path`.
class CsvColumnFinder {
 public:
  // `header` is empty if the file has no header. Throws Error (kData) if two columns have the same name.
  CsvColumnFinder(const std::vector<std::string>& header, int64_t columns, const std::string& path);

  // Returns the number, from 0, of the column to which `reference` refers. Throws Error (kData), which names the option
  // `field`, if there is no such column.
  int64_t Find(const std::string& reference, std::string_view field) const;

 private:
  const std::vector<std::string>& header_;
  int64_t columns_;
  const std::string& path_;
  std::unordered_map<std::string_view, int64_t> numbers_;  // each column's number by its name
};

// The greatest number of columns. A file with more columns is refused as a mistake.
inline constexpr int64_t kMaxCsvColumns = int64_t{1} << 24;

// Returns the number of columns that a file without a header and without labels has, if it is not a training file.
int64_t WidthWithoutLabels(const CsvOptions& options);

// Returns the layout of a training file with `columns` columns. Throws Error (kData).
CsvLayout LayoutInTraining(const CsvOptions& options, const std::string& path,
                           std::vector<std::string> header, int64_t columns);

// Returns the layout of a file that is not a training file. options.columns and options.features say which columns the
// training files had. Throws Error (kData).
CsvLayout LayoutAsTrained(const CsvOptions& options, const std::string& path,
                          std::vector<std::string> header, int64_t columns, int64_t line);

}  // namespace lockstep
