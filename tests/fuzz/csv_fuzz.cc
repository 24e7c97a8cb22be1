// Fuzzes the CSV reader. The input's first three bytes choose the options, and the rest of the input is the file. The
// target reads the file twice. The second time it uses the column types and classes that the first reading found, as
// for the validation files of a data set.

#include <vector>

#include "base/error.h"
#include "data/tables/csv.h"
#include "tests/fuzz/memory_file.h"

namespace lockstep {
namespace {

CsvOptions OptionsOf(uint8_t first, uint8_t second, uint8_t third, const std::string& path) {
  const auto chosen = [](uint8_t byte, int bit) { return (byte >> bit & 1) != 0; };
  CsvOptions options{.files = {path},
                     .delimiter = chosen(first, 0) ? ';' : ',',
                     .header = chosen(first, 1),
                     .label_column = chosen(first, 2) ? 0 : -1,
                     .mean_if_missing = chosen(first, 3),
                     .scaling = chosen(first, 4) ? CsvScaling::kStandard : CsvScaling::kNone,
                     .label_names = chosen(first, 5),
                     .label_optional = chosen(first, 6)};
  if (options.header && chosen(first, 7)) options.labels = {"y"};
  if (chosen(second, 0)) options.category = {options.header ? "c" : "1"};
  if (chosen(second, 1)) options.ignore = {options.header ? "i" : "2"};
  if (chosen(second, 2)) options.task = Task::kRegression;
  if (chosen(second, 3)) options.task = Task::kMultiLabel;
  if (options.task != Task::kClassification) {
    options.label_names = false;
    options.label_columns = 1 + chosen(second, 4);
  }
  if (chosen(second, 5)) options.files.push_back(path);
  if (chosen(second, 6)) options.training_rows = [](int64_t) { return std::vector<int64_t>{0}; };
  if (chosen(second, 7)) options.features = 2;
  if (chosen(third, 0)) options.scaling = CsvScaling::kRobust;
  if (chosen(third, 1)) options.scaling = CsvScaling::kQuantile;
  if (chosen(third, 2)) options.missing_indicator = options.mean_if_missing;
  if (chosen(third, 3)) options.date = {options.header ? "d" : "3"};
  if (chosen(third, 4)) options.category_min_rows = 2;
  return options;
}

void ReadAll(const Dataset& dataset) {
  std::vector<std::byte> input(dataset.spec().bytes()), target(dataset.spec().target_bytes());
  for (int64_t i = 0; i < dataset.size(); ++i) dataset.Read(i, 0, input.data(), target.data());
}

void ReadTwice(CsvOptions options) {
  const CsvTable table = ReadCsv(options);
  ReadAll(*table.dataset);
  options.columns = table.columns;
  options.class_names = table.dataset->spec().class_names;
  options.classes = table.dataset->spec().classes;
  options.features = table.dataset->spec().shape[0];
  options.labels = table.labels;
  ReadAll(*ReadCsv(options).dataset);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const lockstep::MemoryFile file(data + 3, size - 3);
  try {
    lockstep::ReadTwice(lockstep::OptionsOf(data[0], data[1], data[2], file.path()));
  } catch (const lockstep::Error&) {  // the file was refused
  }
  return 0;
}
