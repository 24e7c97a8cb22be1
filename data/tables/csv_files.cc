#include "data/tables/csv_files.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/unpack.h"
#include "data/tables/csv_delimiter.h"

namespace lockstep {

CsvFiles::CsvFiles(const CsvOptions& options, std::optional<size_t> most_bytes)
    : options_(options), bytes_left_(most_bytes.value_or(0)) {
  if (options.label_columns > kMaxCsvColumns) {
    throw DataError("data.csv.label_columns is more than {}", kMaxCsvColumns);
  }
  if (!most_bytes) {
    size_t packed_bytes = 0;
    for (const std::string& path : options.files) packed_bytes += PackedBytes(path);
    bytes_left_ = MostUnpackedBytes(packed_bytes);
  }
  for (const std::string& path : options.files) Open(path);
}

void CsvFiles::Open(const std::string& path) {
  CsvBytes bytes(path, bytes_left_);
  bytes_left_ -= std::min(bytes_left_, bytes.unpacked_bytes());
  const char delimiter = DelimiterOf(path, bytes.text());
  CsvCells cells(path, bytes.text(), delimiter);
  if (!cells.NextRow()) throw DataError("{}: the file has no rows", path);
  const int64_t line = cells.line();
  int64_t columns = 0;
  std::vector<std::string> header;
  while (cells.NextCell()) {
    if (options_.header) header.emplace_back(cells.cell());
    if (++columns <= kMaxCsvColumns) continue;
    throw DataError("{}:{}: more than {} columns (delimiter '{}')", path, line, kMaxCsvColumns,
                    delimiter);
  }
  if (options_.header && !cells.NextRow()) throw DataError("{}: the file has no rows", path);
  CsvLayout layout;
  const bool in_training = options_.features == 0;
  if (!in_training) {
    layout = LayoutAsTrained(options_, path, std::move(header), columns, line);
  } else if (!files_.empty()) {
    RequireSameColumns(path, header, columns, line);
    layout = files_.front().layout;
  } else {
    if (columns <= options_.LabelCount()) {
      const char found = FindDelimiter(path, bytes.text());
      throw DataError(
          "{}:{}: only {} column{}: a row needs a feature and {} label{} (delimiter '{}'){}", path,
          line, columns, columns == 1 ? "" : "s", options_.LabelCount(),
          options_.LabelCount() == 1 ? "" : "s", delimiter,
          found == delimiter ? ""
                             : fmt::format(": set data.csv.delimiter: \"{}\"",
                                           found == '\t' ? "\\t" : std::string(1, found)));
    }
    layout = LayoutInTraining(options_, path, std::move(header), columns);
  }
  if (delimiter != options_.delimiter) {
    remarks_.push_back(
        fmt::format("{}: read with a {} between cells, where the training file has a {}", path,
                    NameOfDelimiter(delimiter), NameOfDelimiter(options_.delimiter)));
  }
  files_.push_back({path, std::move(bytes), std::move(layout), delimiter});
}

char CsvFiles::DelimiterOf(const std::string& path, std::string_view text) const {
  const bool is_first_in_training = options_.features == 0 && files_.empty();
  if (is_first_in_training) return options_.delimiter;
  return FittingDelimiter(path, text, options_.delimiter,
                          [&](const CsvRowOfTexts& first_row) { return FitOf(first_row); });
}

double CsvFiles::FitOf(const std::vector<std::string>& first_row) const {
  constexpr double kMayFit = 0.5;  // without names the number of cells leaves doubt
  if (options_.features == 0) {
    const CsvLayout& first = files_.front().layout;
    if (options_.header) return ShareOfNames(first.header, first_row);
    return first_row.size() == first.roles.size() ? kMayFit : 0;
  }
  if (options_.header) {
    std::vector<std::string> names;
    for (const CsvColumn& column : options_.columns) names.push_back(column.name);
    return ShareOfNames(names, first_row);
  }
  const auto width = static_cast<int64_t>(first_row.size());
  const int64_t unlabelled = WidthWithoutLabels(options_);
  const bool may_lack_labels = options_.label_optional && width == unlabelled;
  return may_lack_labels || width == unlabelled + options_.LabelCount() ? kMayFit : 0;
}

void CsvFiles::RequireSameColumns(const std::string& path, const std::vector<std::string>& header,
                                  int64_t columns, int64_t line) const {
  const CsvFile& first = files_.front();
  const auto expected = static_cast<int64_t>(first.layout.roles.size());
  if (columns != expected) {
    throw DataError("{}:{}: {} columns where {} has {}", path, line, columns, first.path, expected);
  }
  const std::vector<std::string>& other = first.layout.header;
  const auto [here, there] = std::mismatch(header.begin(), header.end(), other.begin());
  if (here == header.end()) return;
  throw DataError("{}:{}: column {} is {} where {} has {}", path, line, here - header.begin() + 1,
                  Quoted(*here), first.path, Quoted(*there));
}

CsvCells CsvFiles::RowsOf(const CsvFile& file) const {
  CsvCells cells(file.path, file.text(), file.delimiter);
  if (options_.header) {
    cells.NextRow();
    SkipRow(cells);
  }
  return cells;
}

int64_t CsvFiles::CountRows() const {
  int64_t rows = 0;
  for (const CsvFile& file : files_) {
    for (CsvCells cells = RowsOf(file); cells.NextRow(); ++rows) SkipRow(cells);
  }
  return rows;
}

}  // namespace lockstep
