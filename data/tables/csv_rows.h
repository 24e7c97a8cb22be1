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
  // The numbers of the inputs; for a category column one number, the place among the column's inputs of the one that is
  // 1, or -1.
  std::vector<float> cells;
  std::vector<int64_t> labels;         // the labels, if they are classes
  std::vector<float> targets;          // the targets of other tasks
  std::vector<std::string> remarks{};  // the lines of Dataset::Remarks()
};

// Returns how many cells of a row the column has.
int64_t CellsOf(const CsvColumn& column);

// Makes a data set of the rows. `columns` are those of CsvTable. Sets spec.shape.
std::shared_ptr<const Dataset> MakeCsvDataset(SampleSpec spec, CsvRows rows,
                                              const std::vector<CsvColumn>& columns);

}  // namespace lockstep
