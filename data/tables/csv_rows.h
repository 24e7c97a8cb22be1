// CsvRows: the rows of a CSV table in memory. MakeCsvDataset() makes a data set of them.
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
  // The numbers of the inputs, row by row. For a category column there is one number: the index, among the column's
  // inputs, of the input that is 1, or -1 if all are 0.
  std::vector<float> cells;
  std::vector<int64_t> labels;         // the labels, if they are classes
  std::vector<float> targets;          // the targets of other tasks
  std::vector<std::string> remarks{};  // the lines of Dataset::Remarks()
};

// Returns how many elements of CsvRows::cells the column takes for each row.
int64_t CellsOf(const CsvColumn& column);

// Makes a data set of the rows. `columns` is CsvTable::columns. Sets spec.shape.
std::shared_ptr<const Dataset> MakeCsvDataset(SampleSpec spec, CsvRows rows,
                                              const std::vector<CsvColumn>& columns);

}  // namespace lockstep
