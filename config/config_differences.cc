#include "config/config_differences.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "config/formats/csv_columns.h"
#include "config/schema/fields.h"

namespace lockstep {

using config::existing_file;
using config::resumable;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

namespace {

constexpr char kNotSet[] = "not set";
constexpr size_t kLongestValue = 100;  // the most characters of a value in a line of Differences()

constexpr char kColumns[] = "data.csv.column", kClasses[] = "data.csv.classes";

// Sorts the categories and classes of a table, so that it equals the config of the same values in another order.
Config WithSortedValues(Config config) {
  config::Csv& csv = *config.mutable_data()->mutable_csv();
  std::ranges::sort(*csv.mutable_classes());
  for (config::Csv::Column& column : *csv.mutable_column()) {
    std::ranges::sort(*column.mutable_category());
  }
  return config;
}

// Returns whether a field says how long a run is.
bool IsLength(const std::string& field) { return field == "epochs" || field == "max_steps"; }

}  // namespace

std::vector<std::string> FieldLines(Config config) {
  std::vector<std::string> lines;
  TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  VisitSetFields(
      config, "", [&](Message& message, const FieldDescriptor& field, const std::string& name) {
        if (IsNested(field)) return;
        const Reflection& reflection = *message.GetReflection();
        const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
        std::vector<std::string> values(count);
        for (int i = 0; i < count; ++i) {
          printer.PrintFieldValueToString(message, &field, field.is_repeated() ? i : -1,
                                          &values[i]);
        }
        // The entries of a map have no defined order.
        if (field.is_map()) std::sort(values.begin(), values.end());
        lines.push_back(fmt::format("{}: {}", name, fmt::join(values, ", ")));
      });
  return lines;
}

std::vector<FieldDifference> DifferingFields(const std::vector<Config>& configs) {
  std::map<std::string, std::vector<std::string>> fields;
  for (size_t i = 0; i < configs.size(); ++i) {
    for (const std::string& line : FieldLines(configs[i])) {
      const size_t colon = line.find(": ");
      std::vector<std::string>& values = fields[line.substr(0, colon)];
      values.resize(configs.size(), kNotSet);
      values[i] = line.substr(colon + 2);
    }
  }
  std::vector<FieldDifference> differences;
  for (auto& [field, values] : fields) {
    if (std::ranges::all_of(
            values, [&values = values](const auto& value) { return value == values.front(); })) {
      continue;
    }
    differences.push_back({field, std::move(values)});
  }
  return differences;
}

std::vector<std::string> Differences(const Config& before, const Config& now) {
  const bool depends_on_length = now.schedule().type() != config::Schedule::CONSTANT &&
                                 now.schedule().type() != config::Schedule::STEP &&
                                 now.schedule().type() != config::Schedule::PLATEAU;
  const auto comparable = [&](Config config) {
    VisitSetFields(
        config, "", [&](Message& message, const FieldDescriptor& field, const std::string& name) {
          if (field.options().GetExtension(existing_file) ||
              field.options().GetExtension(resumable) || (IsLength(name) && !depends_on_length)) {
            message.GetReflection()->ClearField(&message, &field);
          }
        });
    if (config.data().has_csv()) RemoveSpelling(*config.mutable_data()->mutable_csv());
    return config;
  };
  const Config was = comparable(before), is = comparable(now);
  const std::vector<FieldDifference> of_values =
      DifferingFields({WithSortedValues(was), WithSortedValues(is)});
  std::vector<std::string> differences;
  for (const FieldDifference& one : DifferingFields({was, is})) {
    const bool is_short = std::ranges::all_of(
        one.values, [](const std::string& value) { return value.size() <= kLongestValue; });
    differences.push_back(
        is_short ? fmt::format("{}: {} where it was {}", one.field, one.values[1], one.values[0])
                 : one.field + ": another value than it was");
    if (one.field == kColumns || one.field == kClasses) {
      const bool is_order =
          std::ranges::find(of_values, one.field, &FieldDifference::field) == of_values.end();
      differences.back() = fmt::format(
          "{}: {}", one.field,
          is_order ? kOtherOrder : "the training files hold other values than they did");
    }
    if (is_short && IsLength(one.field)) {
      differences.back() += fmt::format(", on which the learning rates of schedule {} depend",
                                        config::Schedule::Type_Name(now.schedule().type()));
    }
  }
  return differences;
}

}  // namespace lockstep
