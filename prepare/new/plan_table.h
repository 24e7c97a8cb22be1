// PlanTable(): chooses the labels and the task for a table, and decides how each column is used.
//
// Promise: a config that follows the plan can train on the table, and the trained run can predict the test file. In
// both files no cell of a number column is a text, and each cell of a date column is a date or missing. No category
// column has more texts than the trainer accepts. The plan gives a reason for each column that is left out. The plan
// depends on nothing but the files and the request.
//
// The label is the first of these that exists: the column that the user names; the column that the test file lacks (if
// it lacks several: those of them that the sample submission has, or else the one with a usual name, or else the last
// one); the columns of the sample submission after its first; a column with a usual name, such as target; the last
// column.
//
// what can fail -> what the caller sees -> the test that shows it (tests/new_test.py)
//   the label is not in the table, is constant, has missing cells, or has more different texts than half the number of
//     rows -> Error (kData, or kUsage for a name that the user gave) with file, line, column and remedy
//     -> test_mistakes_are_one_line
//   the test file has another delimiter, or a column that the table lacks -> Error (kData) that names it
//     -> test_mistakes_are_one_line
//   no column is left to learn from -> Error (kData) with the reasons -> test_mistakes_are_one_line
#pragma once

#include "prepare/new/table_plan.h"

namespace lockstep {

// Makes the plan for request.train. Throws Error (kData, kUsage).
TablePlan PlanTable(const TablePlanRequest& request);

}  // namespace lockstep
