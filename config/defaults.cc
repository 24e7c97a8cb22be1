#include "config/defaults.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "config/formats/formats.h"
#include "config/schema/fields.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string InCapitals(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace

std::string WhyNoMeaning(const config::Config& config, const FieldDescriptor& field) {
  if (!IsNested(field)) return "";
  if (field.containing_type() == config::Model::descriptor()) {
    const std::string& model = config.model().name();
    return model == field.name() ? "" : fmt::format("has no meaning for the model \"{}\"", model);
  }
  if (field.containing_type() != config::Data::descriptor()) return "";
  const config::Data& data = config.data();
  if (field.message_type() == config::Augment::descriptor()) {
    return HoldsPixels(data) ? "" : "is for pixels";
  }
  config::Data::Format format;
  const bool is_one_format = config::Data::Format_Parse(InCapitals(field.name()), &format);
  if (!is_one_format || format == data.format()) return "";
  return fmt::format("has no meaning for format {}", FormatName(data));
}

void FillDefaults(Message& message, const config::Config& config) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (field->is_repeated()) continue;
    if (IsNested(*field)) {
      if (!WhyNoMeaning(config, *field).empty()) continue;
      FillDefaults(*reflection.MutableMessage(&message, field), config);
      continue;
    }
    if (reflection.HasField(message, field)) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(&message, field, field->default_value_bool());
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&message, field, field->default_value_int32());
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.SetInt64(&message, field, field->default_value_int64());
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection.SetUInt64(&message, field, field->default_value_uint64());
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.SetDouble(&message, field, field->default_value_double());
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection.SetEnum(&message, field, field->default_value_enum());
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection.SetString(&message, field, field->default_value_string());
        break;
      default:
        throw BugError("config field {} has a type that has no default here", field->full_name());
    }
  }
}

}  // namespace lockstep
