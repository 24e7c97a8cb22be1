// CsvLayout: the role of each column of a CSV file (number, category, label, ignored).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tables/csv.h"

namespace lockstep {

// What a column of a file is.
struct CsvRole {
  enum class Kind : uint8_t { kNumber, kCategory, kLabel, kIgnored };
  Kind kind = Kind::kNumber;
  int32_t index = 0;  // among the features' columns, or among the labels'
};

inline bool IsFeature(const CsvRole& role) {
  return role.kind == CsvRole::Kind::kNumber || role.kind == CsvRole::Kind::kCategory;
}

struct CsvLayout {
  std::vector<CsvRole> roles;       // of the file's columns
  std::vector<std::string> header;  // their names; empty: the file has none
  bool labelled = true;

  int64_t features() const;  // columns of numbers and categories

  // "column 4 (Age)", from 0.
  std::string NameOf(int64_t column) const;
  // As ignore and category name it.
  std::string Reference(int64_t column) const;
};

// A file with more columns is taken for a mistake.
inline constexpr int64_t kMaxCsvColumns = int64_t{1} << 24;

// The layout of a training file, of `columns` columns. Throws Error (kData).
CsvLayout LayoutInTraining(const CsvOptions& options, const std::string& path,
                           std::vector<std::string> header, int64_t columns);

// The layout of another file, as options.columns and options.features say what training had. Throws
// Error (kData).
CsvLayout LayoutAsTrained(const CsvOptions& options, const std::string& path,
                          std::vector<std::string> header, int64_t columns, int64_t line);

}  // namespace lockstep
