// Says which of two values of a metric is the better one, and which metrics short lines tell.
//
// observe/metrics.inc lists the metrics. A figure that log.jsonl calls "val_..." is the metric of that name, of the
// validation samples.
#pragma once

#include <string_view>

namespace lockstep {

// Returns whether more is better of the metric `name`, such as "accuracy". It is false if there is no such metric.
bool GreaterIsBetter(std::string_view name);

// Returns whether short lines, such as the terminal's of an epoch, tell the metric `name`.
bool IsBrief(std::string_view name);

// Returns the same for the figure that log.jsonl calls `figure`. It is true for all figures that are no metrics of the
// validation.
bool IsBriefFigure(std::string_view figure);

// Returns whether `value` is better than `than`, of the figure that log.jsonl calls `figure`. Less is better for every
// figure that is no metric of the validation, such as "train_loss".
bool IsBetter(std::string_view figure, double value, double than);

}  // namespace lockstep
