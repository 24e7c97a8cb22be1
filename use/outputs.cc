#include "use/outputs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/printable_number.h"

namespace lockstep {
namespace {

using Kind = PredictionColumn::Kind;
using Rows = at::TensorAccessor<double, 2>;

// Returns a column that shares ownership of the tensor with the predictions.
PredictionColumn ColumnWith(const Outputs& outputs, const std::string& name, Kind kind,
                            const std::function<std::string(const Rows&, int64_t)>& cell) {
  return {.name = name, .kind = kind, .cell = [values = outputs.values, cell](int64_t row) {
            return cell(values.accessor<double, 2>(), row);
          }};
}

int64_t Greatest(const Rows& rows, int64_t row) {
  const double* begin = rows[row].data();
  return std::max_element(begin, begin + rows.size(1)) - begin;
}

}  // namespace

std::vector<std::string> NamesOf(const std::vector<std::string>& given, int64_t count) {
  if (!given.empty()) return given;
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

PredictionColumn LabelColumn(const Outputs& outputs, const std::string& name) {
  return ColumnWith(
      outputs, name, outputs.have_names ? Kind::kText : Kind::kNumber,
      [names = outputs.names, best_only = outputs.best_only](const Rows& rows, int64_t row) {
        const auto label = static_cast<int64_t>(rows[row][0]);
        return names.at(best_only ? label : Greatest(rows, row));
      });
}

PredictionColumn ProbabilityColumn(const Outputs& outputs, const std::string& name, int64_t index) {
  return ColumnWith(outputs, name, Kind::kNumber, [index](const Rows& rows, int64_t row) {
    return fmt::format("{:.6f}", PrintableNumber(rows[row][index]));
  });
}

PredictionColumn YesOrNoColumn(const Outputs& outputs, const std::string& name, int64_t index) {
  return ColumnWith(outputs, name, Kind::kNumber, [index](const Rows& rows, int64_t row) {
    return std::string(rows[row][index] >= 0.5 ? "1" : "0");
  });
}

PredictionColumn NumberColumn(const Outputs& outputs, const std::string& name, int64_t index) {
  return ColumnWith(outputs, name, Kind::kNumber, [index](const Rows& rows, int64_t row) {
    return fmt::format("{:.9g}", PrintableNumber(rows[row][index]));
  });
}

std::vector<PredictionColumn> ColumnsOf(const Outputs& outputs) {
  std::vector<PredictionColumn> columns;
  const bool has_classes = outputs.task == Task::kClassification;
  const auto count = static_cast<int64_t>(outputs.names.size());
  if (has_classes) columns.push_back(LabelColumn(outputs, "label"));
  if (outputs.best_only) {
    columns.push_back(ProbabilityColumn(outputs, "probability", 1));
    return columns;
  }
  const bool are_numbers = outputs.task == Task::kRegression;
  const std::string what = are_numbers ? "value" : "probability";
  for (int64_t i = 0; i < count; ++i) {
    const bool is_named = has_classes && outputs.have_names;
    const std::string name = is_named                     ? outputs.names[i]
                             : count == 1 && !has_classes ? what
                                                          : fmt::format("{}_{}", what, i);
    columns.push_back(are_numbers ? NumberColumn(outputs, name, i)
                                  : ProbabilityColumn(outputs, name, i));
    if (is_named) columns.back().owner = PredictionColumn::Owner::kClass;
  }
  return columns;
}

}  // namespace lockstep
