// Prints the cells of a CSV file for tests/csv_test.py: for each row the number of cells, and then for each cell the
// number of bytes and the bytes.
//
//   csv_print FILE DELIMITER

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "data/tables/csv_bytes.h"
#include "data/tables/csv_cells.h"

int main(int, char** arguments) {
  const std::string path = arguments[1];
  try {
    const lockstep::CsvBytes bytes(path);
    lockstep::CsvCells cells(path, bytes.text(), arguments[2][0]);
    while (cells.NextRow()) {
      std::vector<std::string> row;
      while (cells.NextCell()) row.emplace_back(cells.cell());
      fmt::print("{}\n", row.size());
      for (const std::string& cell : row) fmt::print("{}\n{}", cell.size(), cell);
    }
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
