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
  std::vector<std::string> row;
  for (const CsvFile& file : files) {
    const auto width = static_cast<int64_t>(file.layout.roles.size());
    const CsvColumnFinder finder(file.layout.header, width, file.path);
    std::vector<int64_t> places;
    for (const std::string& name : names) places.push_back(finder.Find(name, field));
    row.resize(width);
    for (CsvCells cells = files.RowsOf(file); cells.NextRow();) {
      VisitRow(file, cells,
               [&](const CsvPlace& place, const CsvRole&) { row[place.column] = place.text(); });
      for (size_t i = 0; i < places.size(); ++i) columns[i].push_back(row[places[i]]);
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
