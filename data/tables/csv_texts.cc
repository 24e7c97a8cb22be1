#include "data/tables/csv_texts.h"

#include <cstdint>

#include "base/error.h"
#include "data/tables/csv_bytes.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_files.h"
#include "data/tables/csv_layout.h"

namespace lockstep {
namespace {

// Adds the rows of a file to `columns`. If `columns` is empty, the file is the first one, and the function begins by
// adding an element to `columns` for each column that is to be read.
void ReadFile(const CsvTextOptions& options, const std::string& path,
              std::vector<CsvTextColumn>& columns) {
  const CsvBytes bytes(path);
  CsvCells cells(path, bytes.text(), options.delimiter);
  if (!cells.NextRow()) throw DataError("{}: the file has no rows", path);
  std::vector<std::string> row;
  const auto read_row = [&] {
    row.clear();
    while (cells.NextCell()) row.emplace_back(cells.cell());
  };
  read_row();
  const std::vector<std::string> header = options.header ? row : std::vector<std::string>();
  const size_t width = row.size();
  const CsvColumnFinder finder(header, static_cast<int64_t>(width), path);
  const std::vector<std::string>& asked = options.columns.empty() ? header : options.columns;
  std::vector<int64_t> places;
  for (const std::string& reference : asked) {
    places.push_back(finder.Find(reference, options.field));
    if (columns.size() < places.size()) columns.push_back({.name = reference, .texts = {}});
  }
  const auto add_row = [&] {
    if (row.size() != width) {
      throw DataError("{}:{}: {} columns where {} are expected", path, cells.line(), row.size(),
                      width);
    }
    for (size_t i = 0; i < places.size(); ++i) columns[i].texts.push_back(row[places[i]]);
  };
  if (!options.header) add_row();
  while (cells.NextRow()) {
    read_row();
    add_row();
  }
}

}  // namespace

std::vector<CsvTextColumn> ReadCsvTexts(const CsvTextOptions& options) {
  std::vector<CsvTextColumn> columns;
  for (const std::string& path : options.files) ReadFile(options, path, columns);
  return columns;
}

std::vector<std::string> ReadCsvLabels(const CsvOptions& options) {
  const CsvFiles files(options);
  std::vector<std::string> labels;
  for (const CsvFile& file : files) {
    for (CsvCells cells = files.RowsOf(file); cells.NextRow();) {
      VisitRow(file, cells, [&](const CsvPlace& place, const CsvRole& role) {
        const bool is_first = role.kind == CsvRole::Kind::kLabel && role.index == 0;
        if (is_first) labels.emplace_back(place.text());
      });
    }
  }
  return labels;
}

}  // namespace lockstep
