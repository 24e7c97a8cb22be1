#include "prepare/new/table_sketch.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/tables/csv_bytes.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_layout.h"
#include "data/tables/csv_number.h"

namespace lockstep {
namespace {

using Row = std::vector<std::string>;

// The greatest number of rows, from the beginning of the file, that are read to find the delimiter and the header.
constexpr size_t kFirstRows = 50;

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

  std::string_view text() const { return bytes_.text(); }
  CsvCells Cells(char delimiter) const { return {path_, text(), delimiter}; }

 private:
  const std::string& path_;
  CsvBytes bytes_;
};

std::vector<Row> FirstRows(const Source& source, char delimiter) {
  std::vector<Row> rows;
  CsvCells cells = source.Cells(delimiter);
  while (rows.size() < kFirstRows && cells.NextRow()) {
    rows.emplace_back();
    while (cells.NextCell()) rows.back().emplace_back(cells.cell());
  }
  return rows;
}

// Returns the number of cells in each row; 0 if the rows differ.
size_t CommonWidth(const std::vector<Row>& rows) {
  const size_t width = rows.empty() ? 0 : rows[0].size();
  const bool same = std::ranges::all_of(rows, [&](const Row& row) { return row.size() == width; });
  return same ? width : 0;
}

bool IsNumber(const std::string& cell) {
  return FindNumber(cell, CsvDecimal::kPoint) || FindNumber(cell, CsvDecimal::kCommaAndPoints);
}

size_t NumbersIn(const std::vector<Row>& rows) {
  size_t numbers = 0;
  for (const Row& row : rows) numbers += std::ranges::count_if(row, IsNumber);
  return numbers;
}

// Adds the cells of the rows that `cells` has not read yet to the signs of their columns.
void AddSigns(CsvCells cells, std::vector<DecimalSigns>& signs) {
  while (cells.NextRow()) {
    for (size_t column = 0; cells.NextCell(); ++column) {
      if (column < signs.size()) signs[column].Add(cells.cell());
    }
  }
}

char FindDelimiter(const Source& source) {
  char best = ',';
  std::pair<size_t, size_t> most;  // numbers and cells of a row, with the delimiter `best`
  size_t longest = 1;              // cells of the first row, with the delimiter `fallback`
  char fallback = ',';
  for (const char delimiter : {',', ';', '\t', '|'}) {
    std::vector<Row> rows;
    try {
      rows = FirstRows(source, delimiter);
    } catch (const Error&) {
      continue;  // with a wrong delimiter, text may seem to follow a closing quote
    }
    // With a wrong delimiter, numbers with a decimal comma fall apart into cells such as "5;2".
    if (const size_t width = CommonWidth(rows); width > 1) {
      const std::pair<size_t, size_t> found{NumbersIn(rows), width};
      if (found > most) most = found, best = delimiter;
    }
    if (!rows.empty() && rows[0].size() > longest) {
      longest = rows[0].size();
      fallback = delimiter;
    }
  }
  return most.second > 1 ? best : fallback;
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
  if (rows.size() == 1) return std::ranges::none_of(first, IsNumber);
  if (CountsFromZero(first)) return true;
  bool has_number = false;
  bool is_new = true;  // whether no cell of the first row occurs again in its column
  for (size_t column = 0; column < first.size(); ++column) {
    size_t numbers = 0, texts = 0;
    for (size_t row = 1; row < rows.size(); ++row) {
      if (column >= rows[row].size() || IsMissing(rows[row][column])) continue;
      ++(IsNumber(rows[row][column]) ? numbers : texts);
      is_new = is_new && rows[row][column] != first[column];
    }
    const bool is_number = IsNumber(first[column]);
    has_number = has_number || is_number;
    if (numbers > 0 && texts == 0 && !is_number && !IsMissing(first[column])) return true;
  }
  const std::set<std::string> different(first.begin(), first.end());
  return !has_number && is_new && different.size() == first.size();
}

Dialect DialectOf(const Source& source) {
  Dialect dialect{.delimiter = FindDelimiter(source)};
  dialect.header = FindHeader(FirstRows(source, dialect.delimiter));
  return dialect;
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

Dialect FindDialect(const std::string& path) { return DialectOf(Source(path)); }

std::string NameOfDelimiter(char delimiter) {
  switch (delimiter) {
    case ';':
      return "semicolon";
    case '\t':
      return "tab";
    case '|':
      return "bar";
    default:
      return "comma";
  }
}

TableSketch ReadTableSketch(const std::string& path, std::optional<Dialect> dialect) {
  // Each column keeps an equal part of kMostTexts different texts, but at least kLeastTextsEach and at most
  // kMostTextsEach.
  constexpr size_t kMostTexts = 4'000'000, kMostTextsEach = 10'000, kLeastTextsEach = 200;
  const Source source(path);
  TableSketch table{.path = path, .dialect = dialect ? *dialect : DialectOf(source)};
  CsvCells cells = source.Cells(table.dialect.delimiter);
  if (!cells.NextRow()) throw DataError("{}: the file has no rows", path);
  Row first;
  const int64_t first_line = cells.line();
  while (cells.NextCell()) first.emplace_back(cells.cell());
  const size_t width = first.size();
  if (width == 1 && !dialect) {
    throw DataError(
        "{}:{}: one column, \"{:.40}\": a table has a label and at least one column to predict it "
        "from (cells are separated by commas, semicolons, tabs or bars)",
        path, first_line, first[0]);
  }
  const size_t most = std::clamp(kMostTexts / width, kLeastTextsEach, kMostTextsEach);
  table.signs.resize(width);
  if (MayHaveFormattedNumbers(source.text(), table.dialect.delimiter)) {
    if (!table.dialect.header) {
      for (size_t i = 0; i < width; ++i) table.signs[i].Add(first[i]);
    }
    AddSigns(cells, table.signs);
  }
  for (const DecimalSigns& signs : table.signs) {
    table.columns.emplace_back(most, signs.Found(table.dialect.delimiter));
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

}  // namespace lockstep
