// CsvFiles: opens the files of a CSV table, assigns a role to each column, and visits the rows in order.
//
// The first training file has the delimiter that the options give. Each other file has the one with which its first row
// fits the columns of the training files (data/tables/csv_delimiter.h), and a remark tells if it is another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/tables/csv_bytes.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_layout.h"
#include "data/tables/csv_options.h"
#include "data/tables/csv_value.h"

namespace lockstep {

struct CsvFile {
  const std::string& path;
  CsvBytes bytes;
  CsvLayout layout;
  char delimiter;

  std::string_view text() const { return bytes.text(); }
};

class CsvFiles {
 public:
  // Keeps a reference to `options`. The texts of all compressed files together may have at most `most_bytes` bytes;
  // without it, MostUnpackedBytes() of the files' sizes. Throws Error (kData).
  explicit CsvFiles(const CsvOptions& options, std::optional<size_t> most_bytes = std::nullopt);

  const CsvFile& front() const { return files_.front(); }
  auto begin() const { return files_.begin(); }
  auto end() const { return files_.end(); }

  // Returns a reader of the cells of `file`. The reader's first call of NextRow() moves to the first row after the
  // header.
  CsvCells RowsOf(const CsvFile& file) const;

  // Calls visit(place, role, in_training) for each cell of each row. `in_training` says whether the row is a training
  // row. Throws Error (kData).
  template <typename Visit>
  void VisitRows(const Visit& visit) const;

  // Returns lines that tell which files have another delimiter than the training files, for Dataset::Remarks().
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  void Open(const std::string& path);
  // Returns the delimiter of a file's text.
  char DelimiterOf(const std::string& path, std::string_view text) const;
  // Returns how well the first row of a file fits the columns of the training files (FittingDelimiter()).
  double FitOf(const std::vector<std::string>& first_row) const;
  void RequireSameColumns(const std::string& path, const std::vector<std::string>& header,
                          int64_t columns, int64_t line) const;
  int64_t CountRows() const;

  const CsvOptions& options_;
  size_t bytes_left_;  // how many bytes may still be unpacked
  std::vector<CsvFile> files_;
  std::vector<std::string> remarks_;
};

// Calls visit(place, role) for each cell of the row at which `cells` is. Throws Error (kData).
template <typename Visit>
void VisitRow(const CsvFile& file, CsvCells& cells, const Visit& visit) {
  const std::vector<CsvRole>& roles = file.layout.roles;
  const auto columns = static_cast<int64_t>(roles.size());
  CsvPlace place{file.path, file.layout, cells, cells.line(), 0};
  for (; cells.NextCell(); ++place.column) {
    if (place.column < columns) visit(place, roles[place.column]);
  }
  if (place.column != columns) FailRagged(place, place.column);
}

// Skips the row at which `cells` is.
inline void SkipRow(CsvCells& cells) {
  while (cells.NextCell()) {
  }
}

template <typename Visit>
void CsvFiles::VisitRows(const Visit& visit) const {
  std::vector<int64_t> training;
  if (options_.training_rows) training = options_.training_rows(CountRows());
  auto next = training.begin();
  int64_t row = 0;
  for (const CsvFile& file : files_) {
    for (CsvCells cells = RowsOf(file); cells.NextRow(); ++row) {
      const bool is_next = next != training.end() && *next == row;
      if (is_next) ++next;
      const bool in_training = is_next || !options_.training_rows;
      VisitRow(file, cells, [&](const CsvPlace& place, const CsvRole& role) {
        visit(place, role, in_training);
      });
    }
  }
}

}  // namespace lockstep
