// CsvRows: the rows of a CSV table in memory. MakeCsvDataset() makes a data set of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/tables/csv.h"

namespace lockstep {

struct CsvRows {
  int64_t count = 0;
  std::vector<float> cells;     // numbers, and of categories their place among the column's or -1
  std::vector<int64_t> labels;  // of classes
  std::vector<float> targets;   // otherwise
  std::vector<std::string> remarks{};  // Dataset::Remarks()
};

// `columns` as CsvTable has them. Completes spec.shape.
std::shared_ptr<const Dataset> MakeCsvDataset(SampleSpec spec, CsvRows rows,
                                              const std::vector<CsvColumn>& columns);

}  // namespace lockstep
