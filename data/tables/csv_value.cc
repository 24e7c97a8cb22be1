#include "data/tables/csv_value.h"

#include <cmath>

#include "base/error.h"
#include "data/dataset/inferred_classes.h"

namespace lockstep {
namespace {

bool IsTraining(const CsvOptions& options) { return options.features == 0; }

// Returns words that tell that `text` is a number with the other decimal sign; empty if it is none.
std::string WithOtherSign(std::string_view text, CsvDecimal decimal) {
  const bool has_comma = decimal != CsvDecimal::kPoint;
  double number = 0;
  if (!ParseNumber(text, has_comma ? CsvDecimal::kPoint : CsvDecimal::kCommaAndPoints, number)) {
    return "";
  }
  return fmt::format(" with the decimal {} of this column (data.csv.decimal)",
                     has_comma ? "comma" : "point");
}

}  // namespace

void FailRagged(const CsvPlace& place, int64_t columns) {
  throw DataError("{}:{}: {} columns where {} are expected", place.path, place.row_line, columns,
                  place.layout.roles.size());
}

void FailAt(const CsvPlace& place, const std::string& what) {
  const int64_t line = place.cells.line();
  int64_t columns = place.column + 1;
  while (place.cells.NextCell()) ++columns;
  if (columns != static_cast<int64_t>(place.layout.roles.size())) FailRagged(place, columns);
  throw DataError("{}:{}: {}: {}", place.path, line, place.layout.NameOf(place.column), what);
}

std::string Quoted(std::string_view text) { return fmt::format("\"{:.40}\"", text); }

void RequireMean(const CsvOptions& options, const CsvPlace& place) {
  if (options.mean_if_missing) return;
  FailAt(place, fmt::format("{} is no value: fill it in{}", Quoted(place.text()),
                            IsTraining(options) ? ", or set data.csv.missing: MEAN" : ""));
}

void RequireMissing(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal) {
  if (IsMissing(place.text())) return RequireMean(options, place);
  const std::string column = place.layout.Reference(place.column);
  std::string cure = "write one";
  if (place.row_line == 1 && place.layout.header.empty() && IsTraining(options)) {
    cure = "if the first line holds names, set data.csv.header: true";
  } else if (ParseDate(place.text()) && IsTraining(options)) {
    cure = fmt::format("if the column holds dates, add \"{}\" to data.csv.date", column);
  } else if (IsTraining(options)) {
    cure = fmt::format(
        "if the column holds texts, add \"{}\" to data.csv.category or data.csv.ignore", column);
  }
  FailAt(place, fmt::format("{} is no finite number{}; {}", Quoted(place.text()),
                            WithOtherSign(place.text(), decimal), cure));
}

bool ReadDate(const CsvOptions& options, const CsvPlace& place, CsvDate& date) {
  if (const auto found = ParseDate(place.text())) {
    date = *found;
    return true;
  }
  if (IsMissing(place.text())) {
    RequireMean(options, place);
    return false;
  }
  const std::string or_leave_out =
      IsTraining(options) ? fmt::format(", or move \"{}\" from data.csv.date to data.csv.ignore",
                                        place.layout.Reference(place.column))
                          : "";
  FailAt(place, fmt::format("{} is no date such as 2024-05-31 or 2024-05-31 14:30; write it so{}",
                            Quoted(place.text()), or_leave_out));
}

int64_t ClassIn(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal) {
  // The label is parsed as a double, because a float cannot hold every integer that a label can be.
  double value = 0;
  const bool is_number =
      ParseNumber(place.text(), decimal, value) || ParseTruth(place.text(), value);
  if (!is_number || !(value >= 0) || value != std::floor(value)) {
    FailAt(place, fmt::format("label {} is no class number (an integer from 0); for texts set "
                              "data.csv.label_names: true",
                              Quoted(place.text())));
  }
  if (options.classes > 0 && value >= static_cast<double>(options.classes)) {
    FailAt(place, fmt::format("label {:.40} is out of range: data.classes is {}", place.text(),
                              options.classes));
  }
  if (options.classes == 0 && value >= static_cast<double>(kMaxInferredClasses)) {
    FailAt(place,
           fmt::format("label {:.40} is no likely class number: if it is one, set data.classes",
                       place.text()));
  }
  return static_cast<int64_t>(value);
}

float TargetIn(const CsvOptions& options, const CsvPlace& place, CsvDecimal decimal) {
  float value = 0;
  if (!ParseNumber(place.text(), decimal, value) && !ParseTruth(place.text(), value)) {
    FailAt(place, fmt::format("{} is no finite number{}", Quoted(place.text()),
                              WithOtherSign(place.text(), decimal)));
  }
  if (options.task == Task::kMultiLabel && value != 0 && value != 1) {
    FailAt(place, fmt::format("label {} is neither 0 nor 1", Quoted(place.text())));
  }
  return value;
}

std::string_view ClassNameIn(const CsvPlace& place) {
  if (IsMissingText(place.text())) {
    FailAt(place, fmt::format("label {} is no value", Quoted(place.text())));
  }
  return place.text();
}

std::string_view CategoryIn(const CsvOptions& options, const CsvPlace& place) {
  if (IsMissingText(place.text())) {
    RequireMean(options, place);
    return "";
  }
  return options.mean_if_missing && IsMissing(place.text()) ? "" : place.text();
}

}  // namespace lockstep
