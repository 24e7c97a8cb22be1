// PlanTable(): decides what is to be learnt from a table, and what becomes of each of its columns.
//
// Promise: a config that follows the plan trains on the table, and a run of it predicts the test file: no cell of a
// column of numbers is a text in either file, each cell of one of dates is a date or missing, no category has more
// texts than the trainer takes, and each column that is left out says why. The plan depends on the files alone.
//
// The label is, in this order: what the user names; the column that the test file lacks (of several those that the
// sample submission has, too); the columns of the sample submission after its first; a column with a usual name, such
// as target; the last column.
//
// what can fail -> what the caller sees -> the test that shows it (tests/new_test.py)
//   a label that the table lacks, is constant, has missing cells or as many texts as rows -> Error (kData, or kUsage for
//     a name that the user gave) with file, line, column and cure -> test_mistakes_are_one_line
//   a test file with another delimiter, or columns that the table lacks -> Error (kData) naming one -> likewise
//   no column is left to learn from -> Error (kData) with the reasons -> likewise
#pragma once

#include "prepare/new/table_plan.h"

namespace lockstep {

// Throws Error (kData, kUsage).
TablePlan PlanTable(const TablePlanRequest& request);

}  // namespace lockstep
