// Says which of two values of a metric is better, and which metrics are printed in short lines.
//
// observe/metrics.inc lists the metrics. In log.jsonl the field "val_NAME" is the metric NAME over the validation
// samples.
#pragma once

#include <string_view>

namespace lockstep {

// Returns whether a greater value of the metric `name`, such as "accuracy", is better; false if no metric has this
// name.
bool GreaterIsBetter(std::string_view name);

// Returns whether short lines, such as the terminal's line for an epoch, contain the metric `name`.
bool IsBrief(std::string_view name);

// Returns whether short lines contain the log.jsonl field `figure`. Returns true for every field that is not a
// validation metric.
bool IsBriefFigure(std::string_view figure);

// Returns whether a greater value of the log.jsonl field `figure` is better. Less is better for every field that is not
// a validation metric, such as "train_loss".
bool GreaterFigureIsBetter(std::string_view figure);

// Returns whether `value` of the log.jsonl field `figure` is better than `than`.
bool IsBetter(std::string_view figure, double value, double than);

}  // namespace lockstep
