// Stores the columns of a CSV file in a run's config, and reads them back from it. A CsvColumn also holds the
// statistics that were fitted to the training rows.
//
// what can fail -> nothing here; a config that another program wrote is checked in config/formats/csv.cc
#pragma once

#include <optional>
#include <vector>

#include "config/schema/config.pb.h"
#include "data/tables/csv.h"

namespace lockstep {

CsvScaling ScalingOf(const config::Csv& csv);

// Returns the decimal sign; nullopt for FOUND.
std::optional<CsvDecimal> DecimalOf(config::Csv::Decimal decimal);
config::Csv::Decimal DecimalOf(CsvDecimal decimal);

// Returns how the decimal sign of a column of the training files is found.
DecimalRule DecimalRuleOf(const config::Csv& csv);

// Replaces what a config knows of the training files' spelling, so that it equals the config of the same values in
// another spelling: clears delimiters and decimal signs, and makes keys of the texts of categories and classes
// (data/tables/csv_spelling.h).
void RemoveSpelling(config::Csv& csv);

// Returns whether the config stores a mean and a standard deviation for each numeric column.
bool KeepsMoments(const config::Csv& csv);

// Returns the columns that a run has stored in `csv`.
std::vector<CsvColumn> ColumnsOf(const config::Csv& csv);

// Stores in `csv` the facts about a training column that the run needs to read other files.
void Keep(const CsvColumn& column, config::Csv& csv);

}  // namespace lockstep
