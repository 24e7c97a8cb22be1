// Brings the columns of CSV files, with what was fitted to them, to a run's config and back.
//
// what can fail -> nothing; what another program wrote is checked with the config (config/formats/csv.cc)
#pragma once

#include <vector>

#include "config/schema/config.pb.h"
#include "data/tables/csv.h"

namespace lockstep {

CsvScaling ScalingOf(const config::Csv& csv);

// Returns whether columns of numbers have a mean and a deviation in the config.
bool KeepsMoments(const config::Csv& csv);

// The columns that `csv` has of a run.
std::vector<CsvColumn> ColumnsOf(const config::Csv& csv);

// Adds to `csv` what files of the run need of the column.
void Keep(const CsvColumn& column, config::Csv& csv);

}  // namespace lockstep
