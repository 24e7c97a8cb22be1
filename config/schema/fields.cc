#include "config/schema/fields.h"

#include "base/error.h"
#include "config/schema/options.pb.h"

namespace lockstep {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::vector<const FieldDescriptor*> FieldsOf(const Descriptor& message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* field = message.field(i);
    if (!field->options().HasExtension(config::former)) fields.push_back(field);
  }
  return fields;
}

std::vector<std::string> NamesOf(const std::vector<const FieldDescriptor*>& fields) {
  std::vector<std::string> names;
  for (const FieldDescriptor* field : fields) names.push_back(field->name());
  return names;
}

std::vector<std::string> NamesOf(const EnumDescriptor& values) {
  std::vector<std::string> names;
  for (int i = 0; i < values.value_count(); ++i) names.push_back(values.value(i)->name());
  return names;
}

bool IsNested(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_MESSAGE && !field.is_repeated();
}

std::vector<std::string> ListOf(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

std::vector<std::string> StringsOf(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (!field.is_repeated()) return {reflection.GetString(message, &field)};
  std::vector<std::string> values;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    values.push_back(reflection.GetRepeatedString(message, &field, i));
  }
  return values;
}

std::vector<double> NumbersOf(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    const bool many = field.is_repeated();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        values.push_back(many ? reflection.GetRepeatedInt32(message, &field, i)
                              : reflection.GetInt32(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        values.push_back(static_cast<double>(many ? reflection.GetRepeatedInt64(message, &field, i)
                                                  : reflection.GetInt64(message, &field)));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        values.push_back(many ? reflection.GetRepeatedDouble(message, &field, i)
                              : reflection.GetDouble(message, &field));
        break;
      default:
        throw BugError("config field {} has a range but is no number", field.full_name());
    }
  }
  return values;
}

}  // namespace lockstep
