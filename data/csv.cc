// CSV tables of numbers. No quoting: a quoted cell is no number and is refused as such.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "data/dataset.h"
#include "data/in_memory.h"

namespace lockstep {
namespace {

// Where a cell stands, for error lines. Lines and columns count from 1.
struct Place {
  const std::string& path;
  int64_t line;
  int64_t column;
};

std::string_view Trimmed(std::string_view cell) {
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
  return cell;
}

float NumberIn(std::string_view cell, const Place& place) {
  float value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) {
    throw DataError(
        "{}:{}: column {}: \"{}\" is no finite number{}", place.path, place.line, place.column,
        cell.substr(0, 40),
        place.line == 1 ? "; if the first line holds names, set data.csv.header: true" : "");
  }
  return value;
}

// More classes than this are taken for a mistake unless data.classes asks for them.
constexpr double kMaxInferredClasses = 1e6;

int64_t LabelIn(std::string_view cell, const Place& place, int64_t classes) {
  // A double holds every integer that a label can be; a float does not.
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool number = error == std::errc() && end == cell.data() + cell.size();
  if (!number || !(value >= 0) || value != std::floor(value)) {
    throw DataError("{}:{}: column {}: label \"{}\" is no class number (an integer from 0)",
                    place.path, place.line, place.column, cell.substr(0, 40));
  }
  if (classes > 0 && value >= static_cast<double>(classes)) {
    throw DataError("{}:{}: column {}: label {} is out of range: data.classes is {}", place.path,
                    place.line, place.column, cell, classes);
  }
  if (classes == 0 && value >= kMaxInferredClasses) {
    throw DataError(
        "{}:{}: column {}: label {} is no likely class number: if it is one, set "
        "data.classes",
        place.path, place.line, place.column, cell);
  }
  return static_cast<int64_t>(value);
}

// Whether the cell's label applies.
float FlagIn(std::string_view cell, const Place& place) {
  const float value = NumberIn(cell, place);
  if (value == 0 || value == 1) return value;
  throw DataError("{}:{}: column {}: label \"{}\" is neither 0 nor 1", place.path, place.line,
                  place.column, cell.substr(0, 40));
}

class CsvReader {
 public:
  explicit CsvReader(const CsvOptions& options) : options_(options) {
    if (options.features > 0) SetWidth(options.features + options.label_columns);
  }

  void ReadFile(const std::string& path) {
    const std::string content = ReadWholeFile(path);
    int64_t line_number = 0;
    const int64_t rows_before = rows_;
    for (std::string_view rest = content; !rest.empty();) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      ++line_number;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line_number == 1 && options_.header) continue;
      if (Trimmed(line).empty()) continue;
      ReadRow(line, path, line_number);
    }
    if (rows_ == rows_before) throw DataError("{}: the file has no rows", path);
  }

  std::shared_ptr<const Dataset> Finish() && {
    SampleSpec spec{.shape = {width_ - options_.label_columns}, .task = options_.task};
    const bool has_classes = options_.task == Task::kClassification;
    if (!has_classes) {
      spec.classes = options_.label_columns;
    } else if (options_.classes > 0) {
      spec.classes = options_.classes;
    } else {
      spec.classes = 1 + *std::max_element(labels_.begin(), labels_.end());
    }
    return MakeInMemory(std::move(spec), BytesOf(features_),
                        has_classes ? BytesOf(labels_) : BytesOf(numbers_));
  }

 private:
  void SetWidth(int64_t width) {
    width_ = width;
    label_column_ = options_.label_column + (options_.label_column < 0 ? width : 0);
    if (label_column_ < 0 || label_column_ + options_.label_columns > width) {
      throw DataError(
          "{}: {} label column{} from data.csv.label_column {} on: outside the {} columns",
          options_.files.front(), options_.label_columns, options_.label_columns == 1 ? "" : "s",
          options_.label_column, width);
    }
  }

  void ReadRow(std::string_view line, const std::string& path, int64_t line_number) {
    const int64_t columns = 1 + std::count(line.begin(), line.end(), options_.delimiter);
    if (width_ == 0) {
      if (columns <= options_.label_columns) {
        throw DataError(
            "{}:{}: only {} column{}: a row needs a feature and {} label{} (delimiter '{}')", path,
            line_number, columns, columns == 1 ? "" : "s", options_.label_columns,
            options_.label_columns == 1 ? "" : "s", options_.delimiter);
      }
      SetWidth(columns);
    }
    const bool labelled = columns == width_;
    if (!labelled && !(options_.label_optional && columns == width_ - options_.label_columns)) {
      throw DataError("{}:{}: {} columns where {} are expected", path, line_number, columns,
                      width_);
    }

    for (int64_t column = 0; column < columns; ++column) {
      const std::string_view cell = Trimmed(line.substr(0, line.find(options_.delimiter)));
      const Place place{path, line_number, column + 1};
      const int64_t label = column - label_column_;
      if (labelled && label >= 0 && label < options_.label_columns) {
        AddLabel(cell, place);
      } else {
        features_.push_back(NumberIn(cell, place) * options_.scale);
      }
      line.remove_prefix(std::min(line.size(), line.find(options_.delimiter) + 1));
    }
    if (!labelled && options_.task == Task::kClassification) {
      labels_.push_back(Dataset::kNoLabel);
    } else if (!labelled) {
      numbers_.insert(numbers_.end(), options_.label_columns,
                      std::numeric_limits<float>::quiet_NaN());
    }
    ++rows_;
  }

  void AddLabel(std::string_view cell, const Place& place) {
    if (options_.task == Task::kClassification) {
      labels_.push_back(LabelIn(cell, place, options_.classes));
    } else if (options_.task == Task::kMultiLabel) {
      numbers_.push_back(FlagIn(cell, place));
    } else {
      numbers_.push_back(NumberIn(cell, place));
    }
  }

  const CsvOptions& options_;
  int64_t width_ = 0;  // columns of a labelled row
  int64_t label_column_ = 0;
  int64_t rows_ = 0;
  std::vector<float> features_;
  std::vector<int64_t> labels_;  // for classes
  std::vector<float> numbers_;   // otherwise
};

}  // namespace

std::shared_ptr<const Dataset> ReadCsv(const CsvOptions& options) {
  CsvReader reader(options);
  for (const std::string& path : options.files) reader.ReadFile(path);
  return std::move(reader).Finish();
}

}  // namespace lockstep
