// Chooses the label columns of a table, and the task. See prepare/new/table_plan.h.
#pragma once

#include "prepare/new/table_plan.h"

namespace lockstep {

// Sets plan.labels and plan.label_reason. Throws Error (kData, kUsage).
void ChooseLabels(const TablePlanRequest& request, TablePlan& plan);

// Sets plan.task, plan.task_reason and the fields that describe the classes. Throws Error (kData, kUsage).
void ChooseTask(const TablePlanRequest& request, TablePlan& plan);

}  // namespace lockstep
