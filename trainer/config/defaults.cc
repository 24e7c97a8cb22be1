#include "trainer/config/defaults.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "trainer/config/schema/fields.h"
#include "trainer/formats/format.h"

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

OptionsOf Owner(const FieldDescriptor& field) {
  if (!IsNested(field)) return OptionsOf::kAll;
  if (field.containing_type() == config::Model::descriptor()) return OptionsOf::kOneModel;
  if (field.message_type() == config::Augment::descriptor()) return OptionsOf::kPixels;
  config::Data::Format unused;
  if (field.containing_type() == config::Data::descriptor() &&
      config::Data::Format_Parse(InCapitals(field.name()), &unused)) {
    return OptionsOf::kOneFormat;
  }
  return OptionsOf::kAll;
}

bool HasMeaning(const config::Config& config, const FieldDescriptor& field) {
  switch (Owner(field)) {
    case OptionsOf::kAll:
      return true;
    case OptionsOf::kOneModel:
      return config.model().name() == field.name();
    case OptionsOf::kOneFormat:
      return FormatName(config.data()) == InCapitals(field.name());
    case OptionsOf::kPixels:
      return HoldsPixels(config.data());
  }
  throw BugError("the options {}", field.full_name());
}

void FillDefaults(Message& message, const config::Config& config) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (field->is_repeated()) continue;
    if (IsNested(*field)) {
      if (!HasMeaning(config, *field)) continue;
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
