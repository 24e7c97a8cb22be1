// Chooses the label columns of a table, and what is learnt of them. See prepare/new/table_plan.h.
#pragma once

#include "prepare/new/table_plan.h"

namespace lockstep {

// Sets labels and label_reason. Throws Error (kData, kUsage).
void ChooseLabels(const TablePlanRequest& request, TablePlan& plan);

// Sets task, task_reason and what belongs to the task. Throws Error (kData, kUsage).
void ChooseTask(const TablePlanRequest& request, TablePlan& plan);

}  // namespace lockstep
