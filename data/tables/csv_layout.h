// CsvLayout: the role of each column of a CSV file (number, category, label, ignored).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tables/csv.h"

namespace lockstep {

// The role of a column of a file.
struct CsvRole {
  enum class Kind : uint8_t { kNumber, kCategory, kLabel, kIgnored };
  Kind kind = Kind::kNumber;
  int32_t index = 0;  // the index of the column among the features, or among the labels
};

inline bool IsFeature(const CsvRole& role) {
  return role.kind == CsvRole::Kind::kNumber || role.kind == CsvRole::Kind::kCategory;
}

struct CsvLayout {
  std::vector<CsvRole> roles;       // the role of each column of the file
  std::vector<std::string> header;  // the names of the columns; empty: the file has no header
  bool labelled = true;

  int64_t features() const;  // the number of columns of numbers and categories

  // Returns the name for error messages, such as "column 4 (Age)". Columns count from 0.
  std::string NameOf(int64_t column) const;
  // Returns the text that the options `ignore` and `category` have for the column.
  std::string Reference(int64_t column) const;
};

// A file with more columns is refused as a mistake.
inline constexpr int64_t kMaxCsvColumns = int64_t{1} << 24;

// Returns the layout of a training file with `columns` columns. Throws Error (kData).
CsvLayout LayoutInTraining(const CsvOptions& options, const std::string& path,
                           std::vector<std::string> header, int64_t columns);

// Returns the layout of a file that is not a training file. options.columns and options.features say which columns the
// training files had. Throws Error (kData).
CsvLayout LayoutAsTrained(const CsvOptions& options, const std::string& path,
                          std::vector<std::string> header, int64_t columns, int64_t line);

}  // namespace lockstep
