// CsvRows: the rows of a CSV table in memory. MakeCsvDataset() makes a data set of these rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tables/csv_options.h"

namespace lockstep {

struct CsvRows {
  int64_t count = 0;
  // The numbers of the inputs, row by row. A category column has one number for each row in `cells`. An input has
  // several elements for this column, and at most one of them is 1; the number is the index of that element among them,
  // or -1 if all of them are 0.
  std::vector<float> cells;
  std::vector<int64_t> labels;         // the class of each row, for kClassification
  std::vector<float> targets;          // the targets of other tasks, row by row
  std::vector<std::string> remarks{};  // the lines of Dataset::Remarks()
  DataContents files{};                // the files of the rows
};

// Returns how many elements of CsvRows::cells `column` takes for each row.
int64_t CellsOf(const CsvColumn& column);

// Returns a data set of `rows`, whose spec() is `spec` with the shape of an input. `columns` is CsvTable::columns.
std::shared_ptr<const Dataset> MakeCsvDataset(SampleSpec spec, CsvRows rows,
                                              const std::vector<CsvColumn>& columns);

}  // namespace lockstep
