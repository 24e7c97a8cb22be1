#include "prepare/new/table_sketch.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/tables/csv_bytes.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_delimiter.h"
#include "data/tables/csv_layout.h"
#include "data/tables/csv_number.h"

namespace lockstep {
namespace {

using Row = CsvRowOfTexts;

// The greatest number of rows, from the beginning of the file, that are read to find the header.
constexpr size_t kFirstRows = 50;

// The greatest number of bytes of a cell in the first row. A file with more is no table.
constexpr size_t kMostNameBytes = size_t{1} << 20;

// The text of a CSV file, which may be compressed.
class Source {
 public:
  // Reads the file `path`. Throws Error (kData) if it cannot be read or is a Parquet table.
  explicit Source(const std::string& path) : path_(path), bytes_(path) {
    if (!text().starts_with("PAR1")) return;
    throw DataError(
        "{}: the file is a Parquet table: write it as CSV (in pandas: read_parquet, "
        "to_csv)",
        path_);
  }

  const std::string& path() const { return path_; }
  std::string_view text() const { return bytes_.text(); }
  CsvCells Cells(char delimiter) const { return {path_, text(), delimiter}; }

 private:
  const std::string& path_;
  CsvBytes bytes_;
};

// Adds the cells of the rows that `cells` has not read yet to the signs of their columns.
void AddSigns(CsvCells cells, std::vector<DecimalSigns>& signs) {
  while (cells.NextRow()) {
    for (size_t column = 0; cells.NextCell(); ++column) {
      if (column < signs.size()) signs[column].Add(cells.cell());
    }
  }
}

bool CountsFromZero(const Row& row) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != std::to_string(i)) return false;
  }
  return row.size() > 1;
}

bool FindHeader(const std::vector<Row>& rows) {
  if (rows.empty()) return false;
  const Row& first = rows[0];
  // A table of one line, without a number, is a header alone.
  if (rows.size() == 1) return std::ranges::none_of(first, IsAnyNumber);
  if (CountsFromZero(first)) return true;
  bool has_number = false;
  bool is_new = true;  // whether no cell of the first row occurs again in its column
  for (size_t column = 0; column < first.size(); ++column) {
    size_t numbers = 0, texts = 0;
    for (size_t row = 1; row < rows.size(); ++row) {
      if (column >= rows[row].size() || IsMissing(rows[row][column])) continue;
      ++(IsAnyNumber(rows[row][column]) ? numbers : texts);
      is_new = is_new && rows[row][column] != first[column];
    }
    const bool is_number = IsAnyNumber(first[column]);
    has_number = has_number || is_number;
    if (numbers > 0 && texts == 0 && !is_number && !IsMissing(first[column])) return true;
  }
  const std::set<std::string> different(first.begin(), first.end());
  return !has_number && is_new && different.size() == first.size();
}

Dialect DialectOf(const Source& source) {
  Dialect dialect{.delimiter = FindDelimiter(source.path(), source.text())};
  dialect.header =
      FindHeader(FirstRows(source.path(), source.text(), dialect.delimiter, kFirstRows));
  return dialect;
}

// Reads a CSV file as `dialect` says. If `train` is not null, columns have the decimal signs that they have there.
TableSketch ReadSketch(const Source& source, const Dialect& dialect,
                       const TableSketch* train = nullptr) {
  // Each column keeps an equal part of kMostTexts different texts, but at least kLeastTextsEach and at most
  // kMostTextsEach.
  constexpr size_t kMostTexts = 4'000'000, kMostTextsEach = 10'000, kLeastTextsEach = 200;
  const std::string& path = source.path();
  TableSketch table{.path = path, .dialect = dialect};
  CsvCells cells = source.Cells(table.dialect.delimiter);
  if (!cells.NextRow()) throw DataError("{}: the file has no rows", path);
  const int64_t first_line = cells.line();
  Row first;
  while (cells.NextCell()) {
    first.emplace_back(cells.cell());
    RequireFewColumns(path, first_line, first.size());
    if (first.back().size() <= kMostNameBytes) continue;
    throw DataError("{}:{}: a cell of more than {} bytes, \"{:.40}\": this is no table", path,
                    first_line, kMostNameBytes, first.back());
  }
  const size_t width = first.size();
  const size_t most = std::clamp(kMostTexts / width, kLeastTextsEach, kMostTextsEach);
  table.signs.resize(width);
  if (MayHaveFormattedNumbers(source.text(), table.dialect.delimiter)) {
    if (!table.dialect.header) {
      for (size_t i = 0; i < width; ++i) table.signs[i].Add(first[i]);
    }
    AddSigns(cells, table.signs);
  }
  const std::vector<CsvDecimal> decimals = table.rule().ForAll(table.signs);
  for (size_t i = 0; i < width; ++i) {
    // Without a header only a file with as many columns shows which column is which.
    const bool has_names = table.dialect.header || (train && train->names.size() == width);
    const int64_t trained =
        train && has_names ? train->Find(table.dialect.header ? first[i] : std::to_string(i)) : -1;
    table.columns.emplace_back(most, trained < 0 ? decimals[i] : train->columns[trained].decimal());
  }
  if (table.dialect.header) {
    table.names = first;
    CsvColumnFinder(table.names, static_cast<int64_t>(width),
                    path);  // throws if two columns have one name
  } else {
    for (size_t i = 0; i < width; ++i) {
      table.names.push_back(std::to_string(i));
      table.columns[i].Add(first[i], first_line);
    }
    ++table.rows;
  }
  while (cells.NextRow()) {
    const int64_t line = cells.line();
    size_t column = 0;
    for (; cells.NextCell(); ++column) {
      if (column < width) table.columns[column].Add(cells.cell(), line);
    }
    if (column != width) {
      throw DataError(
          "{}:{}: {} columns where {} are expected: a cell that holds a {} needs quotes", path,
          line, column, width, NameOfDelimiter(table.dialect.delimiter));
    }
    ++table.rows;
  }
  if (table.rows == 0) throw DataError("{}: a header and no rows below it", path);
  for (ColumnSketch& column : table.columns) column.End();
  return table;
}

}  // namespace

int64_t TableSketch::Find(const std::string& name) const {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? -1 : found - names.begin();
}

std::string TableSketch::NameOf(int64_t column) const {
  return fmt::format("column {}", column + 1) +
         (dialect.header ? fmt::format(" ({:.40})", names[column]) : "");
}

TableSketch ReadTableSketch(const std::string& path) {
  const Source source(path);
  const Dialect dialect = DialectOf(source);
  CsvCells cells = source.Cells(dialect.delimiter);
  if (!cells.NextRow()) throw DataError("{}: the file has no rows", path);
  cells.NextCell();
  const std::string first(cells.cell());
  if (cells.NextCell()) return ReadSketch(source, dialect);
  throw DataError(
      "{}:{}: one column, \"{:.40}\": a table has a label and at least one column to predict it "
      "from (cells are separated by commas, semicolons, tabs or bars)",
      path, cells.line(), first);
}

TableSketch ReadTestSketch(const std::string& path, const TableSketch& train) {
  const Source source(path);
  const auto fit = [&](const Row& first_row) {
    if (train.dialect.header) return ShareOfNames(train.names, first_row);
    const size_t width = first_row.size(), most = train.names.size();
    return width > 1 && width <= most ? static_cast<double>(width) / (2.0 * most) : 0;
  };
  const char delimiter = FittingDelimiter(path, source.text(), train.dialect.delimiter, fit);
  return ReadSketch(source, {.delimiter = delimiter, .header = train.dialect.header}, &train);
}

TableSketch ReadSampleSketch(const std::string& path) {
  const Source source(path);
  return ReadSketch(source, {.delimiter = FindDelimiter(path, source.text()), .header = true});
}

}  // namespace lockstep
