#include "trainer/config/config_differences.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "trainer/config/schema/fields.h"

namespace lockstep {

using config::existing_file;
using config::resumable;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

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
        // A map's order is not defined.
        if (field.is_map()) std::sort(values.begin(), values.end());
        lines.push_back(fmt::format("{}: {}", name, fmt::join(values, ", ")));
      });
  return lines;
}

std::vector<std::string> Differences(const Config& before, const Config& now) {
  const bool depends_on_length = now.schedule().type() != config::Schedule::CONSTANT &&
                                 now.schedule().type() != config::Schedule::STEP &&
                                 now.schedule().type() != config::Schedule::PLATEAU;
  // Of each field, by its name.
  struct Values {
    std::string before = "not set";
    std::string now = "not set";
  };
  std::map<std::string, Values> fields;
  const auto collect = [&](Config config, std::string Values::*value) {
    VisitSetFields(
        config, "", [&](Message& message, const FieldDescriptor& field, const std::string& name) {
          const bool length = name == "epochs" || name == "max_steps";
          if (field.options().GetExtension(existing_file) ||
              field.options().GetExtension(resumable) || (length && !depends_on_length)) {
            message.GetReflection()->ClearField(&message, &field);
          }
        });
    for (const std::string& line : FieldLines(std::move(config))) {
      const size_t colon = line.find(": ");
      fields[line.substr(0, colon)].*value = line.substr(colon + 2);
    }
  };
  collect(before, &Values::before);
  collect(now, &Values::now);
  std::vector<std::string> differences;
  for (const auto& [name, values] : fields) {
    if (values.before == values.now) continue;
    differences.push_back(fmt::format("{}: {} where it was {}", name, values.now, values.before));
  }
  return differences;
}

}  // namespace lockstep
