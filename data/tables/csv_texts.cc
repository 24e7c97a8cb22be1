#include "data/tables/csv_texts.h"

#include <cstdint>

#include "base/error.h"
#include "data/tables/csv_bytes.h"
#include "data/tables/csv_cells.h"
#include "data/tables/csv_delimiter.h"
#include "data/tables/csv_files.h"
#include "data/tables/csv_layout.h"

namespace lockstep {

std::vector<std::vector<std::string>> ReadCsvTexts(const CsvOptions& options,
                                                   const std::vector<std::string>& names,
                                                   std::string_view field) {
  const CsvFiles files(options);
  std::vector<std::vector<std::string>> columns(names.size());
  for (const CsvFile& file : files) {
    const size_t width = file.layout.roles.size();
    const CsvColumnFinder finder(file.layout.header, static_cast<int64_t>(width), file.path);
    // For each column of the file the elements of `columns` that get its texts.
    std::vector<std::vector<size_t>> wanted(width);
    for (size_t i = 0; i < names.size(); ++i) wanted[finder.Find(names[i], field)].push_back(i);
    for (CsvCells cells = files.RowsOf(file); cells.NextRow();) {
      VisitRow(file, cells, [&](const CsvPlace& place, const CsvRole&) {
        for (const size_t i : wanted[place.column]) columns[i].emplace_back(place.text());
      });
    }
  }
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

CsvTextTable ReadCsvTextTable(const std::string& path) {
  const CsvBytes bytes(path);
  CsvTextTable table{.delimiter = FindDelimiter(path, bytes.text()), .columns = {}};
  CsvCells cells(path, bytes.text(), table.delimiter);
  if (!cells.NextRow()) throw DataError("{}: the file has no rows", path);
  while (cells.NextCell()) {
    table.columns.push_back({.name = std::string(cells.cell()), .texts = {}});
  }
  const size_t width = table.columns.size();
  std::vector<std::string> header;
  for (const CsvTextColumn& column : table.columns) header.push_back(column.name);
  // The constructor throws if two columns have one name.
  CsvColumnFinder(header, static_cast<int64_t>(width), path);
  while (cells.NextRow()) {
    const int64_t line = cells.line();
    size_t column = 0;
    for (; cells.NextCell(); ++column) {
      if (column < width) table.columns[column].texts.emplace_back(cells.cell());
    }
    if (column != width) {
      throw DataError("{}:{}: {} columns where {} are expected", path, line, column, width);
    }
  }
  return table;
}

}  // namespace lockstep
