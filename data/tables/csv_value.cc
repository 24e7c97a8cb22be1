#include "data/tables/csv_value.h"

#include "base/error.h"
#include "base/small_letters.h"
#include "data/dataset/inferred_classes.h"

namespace lockstep {
namespace {

bool IsTraining(const CsvOptions& options) { return options.features == 0; }

// Returns the first five characters of a cell in small letters, which are enough to see whether the cell is missing.
std::string SmallBeginning(std::string_view text) {
  constexpr size_t kLongest = 5;
  return InSmallLetters(TrimmedCell(text).substr(0, kLongest));
}

bool IsMissingText(const std::string& small) {
  return small.empty() || small == "na" || small == "nan" || small == "null";
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

bool IsMissing(std::string_view text) { return IsMissingText(SmallBeginning(text)); }

bool NumberIsMissing(std::string_view text) {
  const std::string small = SmallBeginning(text);
  return IsMissingText(small) || small == "nat" || small == "none";
}

void RequireMean(const CsvOptions& options, const CsvPlace& place) {
  if (options.mean_if_missing) return;
  FailAt(place, fmt::format("{} is no value: fill it in{}", Quoted(place.text()),
                            IsTraining(options) ? ", or set data.csv.missing: MEAN" : ""));
}

void RequireMissing(const CsvOptions& options, const CsvPlace& place) {
  if (NumberIsMissing(place.text())) return RequireMean(options, place);
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
  FailAt(place, fmt::format("{} is no finite number; {}", Quoted(place.text()), cure));
}

bool ReadDate(const CsvOptions& options, const CsvPlace& place, CsvDate& date) {
  if (const auto found = ParseDate(place.text())) {
    date = *found;
    return true;
  }
  if (NumberIsMissing(place.text())) {
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

int64_t ClassIn(const CsvOptions& options, const CsvPlace& place) {
  // The label is parsed as a double, because a float cannot hold every integer that a label can be.
  double value = 0;
  if (!ParseNumber(place.text(), value) || !(value >= 0) || value != std::floor(value)) {
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

float TargetIn(const CsvOptions& options, const CsvPlace& place) {
  float value = 0;
  if (!ParseNumber(place.text(), value))
    FailAt(place, Quoted(place.text()) + " is no finite number");
  if (options.task == Task::kMultiLabel && value != 0 && value != 1) {
    FailAt(place, fmt::format("label {} is neither 0 nor 1", Quoted(place.text())));
  }
  return value;
}

std::string_view ClassNameIn(const CsvPlace& place) {
  if (IsMissing(place.text())) {
    FailAt(place, fmt::format("label {} is no value", Quoted(place.text())));
  }
  return place.text();
}

std::string_view CategoryIn(const CsvOptions& options, const CsvPlace& place) {
  if (!IsMissing(place.text())) return place.text();
  RequireMean(options, place);
  return "";
}

}  // namespace lockstep
