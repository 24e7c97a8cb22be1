#include "data/tables/csv_delimiter.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_number.h"

namespace lockstep {
namespace {

constexpr std::array<char, 4> kDelimiters{',', ';', '\t', '|'};

// The greatest number of rows, from the beginning of the file, that are read to find the delimiter.
constexpr size_t kFirstRows = 50;

// The greatest number of bytes of a cell of the first rows.
constexpr size_t kKeptBytes = 4096;

// Returns the number of cells in each row; 0 if the rows differ.
size_t CommonWidth(const std::vector<CsvRowOfTexts>& rows) {
  const size_t width = rows.empty() ? 0 : rows[0].size();
  const bool same =
      std::ranges::all_of(rows, [&](const CsvRowOfTexts& row) { return row.size() == width; });
  return same ? width : 0;
}

size_t NumbersIn(const std::vector<CsvRowOfTexts>& rows) {
  size_t numbers = 0;
  for (const CsvRowOfTexts& row : rows) numbers += std::ranges::count_if(row, IsAnyNumber);
  return numbers;
}

// As FirstRows(), but returns no rows if the text cannot be read with this delimiter.
std::vector<CsvRowOfTexts> FirstRowsOrNone(const std::string& path, std::string_view text,
                                           char delimiter, size_t most) {
  try {
    return FirstRows(path, text, delimiter, most);
  } catch (const Error&) {
    return {};  // with a wrong delimiter, text may seem to follow a closing quote; or the row has too many cells
  }
}

}  // namespace

std::vector<CsvRowOfTexts> FirstRows(const std::string& path, std::string_view text, char delimiter,
                                     size_t most) {
  std::vector<CsvRowOfTexts> rows;
  CsvCells cells(path, text, delimiter);
  while (rows.size() < most && cells.NextRow()) {
    rows.emplace_back();
    while (cells.NextCell()) {
      RequireFewColumns(path, cells.line(), rows.back().size() + 1);
      rows.back().emplace_back(cells.cell().substr(0, kKeptBytes));
    }
  }
  return rows;
}

void RequireFewColumns(const std::string& path, int64_t line, size_t columns) {
  constexpr size_t kMostColumns = 65'536;
  if (columns <= kMostColumns) return;
  throw DataError(
      "{}:{}: more than {} columns: write the config by hand (lockstep config --template)", path,
      line, kMostColumns);
}

char FindDelimiter(const std::string& path, std::string_view text) {
  char best = ',';
  std::pair<size_t, double> most;  // numbers in the rows, and rank among as many, with `best`
  size_t longest = 1;              // cells of the first row, with the delimiter `fallback`
  char fallback = ',';
  for (const char delimiter : kDelimiters) {
    const auto rows = FirstRowsOrNone(path, text, delimiter, kFirstRows);
    // With a wrong delimiter, numbers with a decimal comma fall apart into cells such as "5;2".
    if (const size_t width = CommonWidth(rows); width > 1) {
      const size_t numbers = NumbersIn(rows);
      const auto cells = static_cast<double>(width);
      const std::pair<size_t, double> found{numbers, numbers > 0 ? 1 / cells : cells};
      if (found > most) most = found, best = delimiter;
    }
    if (!rows.empty() && rows[0].size() > longest) {
      longest = rows[0].size();
      fallback = delimiter;
    }
  }
  return most.second > 0 ? best : fallback;
}

char FittingDelimiter(const std::string& path, std::string_view text, char expected,
                      const std::function<double(const CsvRowOfTexts& first_row)>& fit) {
  const auto fit_with = [&](char delimiter) {
    const auto rows = FirstRowsOrNone(path, text, delimiter, 1);
    return rows.empty() ? 0 : fit(rows[0]);
  };
  if (fit_with(expected) >= 1) return expected;
  double best_fit = 0;
  char best = expected;
  const auto compare = [&](char delimiter) {
    if (const double found = fit_with(delimiter); found > best_fit) {
      best_fit = found;
      best = delimiter;
    }
  };
  compare(FindDelimiter(path, text));
  compare(expected);
  std::ranges::for_each(kDelimiters, compare);
  return best;
}

double ShareOfNames(const std::vector<std::string>& names, const CsvRowOfTexts& row) {
  if (names.empty()) return 0;
  const std::unordered_set<std::string_view> cells(row.begin(), row.end());
  const auto found =
      std::ranges::count_if(names, [&](const std::string& name) { return cells.contains(name); });
  return static_cast<double>(found) / static_cast<double>(names.size());
}

std::string NameOfDelimiter(char delimiter) {
  switch (delimiter) {
    case ',':
      return "comma";
    case ';':
      return "semicolon";
    case '\t':
      return "tab";
    case '|':
      return "bar";
    case ' ':
      return "space";
    default:
      return std::string("'") + delimiter + "'";
  }
}

}  // namespace lockstep
