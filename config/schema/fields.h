// Lists the fields of a protobuf message, for code that treats all fields of a config in the same way.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/repeated_field.h>

#include <string>
#include <type_traits>
#include <vector>

namespace lockstep {

// Returns the fields of a message, without those that only configs of earlier versions can have.
std::vector<const google::protobuf::FieldDescriptor*> FieldsOf(
    const google::protobuf::Descriptor& message);

std::vector<std::string> NamesOf(
    const std::vector<const google::protobuf::FieldDescriptor*>& fields);
std::vector<std::string> NamesOf(const google::protobuf::EnumDescriptor& values);

// Returns whether the field is a single message and not a list of messages.
bool IsNested(const google::protobuf::FieldDescriptor& field);

// Returns the texts of a repeated string field.
std::vector<std::string> ListOf(const google::protobuf::RepeatedPtrField<std::string>& texts);

// Returns the values of a string field, which may be repeated.
std::vector<std::string> StringsOf(const google::protobuf::Message& message,
                                   const google::protobuf::FieldDescriptor& field);

// Returns the values of a number field, which may be repeated. Throws BugError if the field is not a number.
std::vector<double> NumbersOf(const google::protobuf::Message& message,
                              const google::protobuf::FieldDescriptor& field);

// Calls visit(message, field, dotted name) for every field that is set, depth first.
template <typename AnyMessage, typename Visit>
void VisitSetFields(AnyMessage& message, const std::string& prefix, const Visit& visit) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (const google::protobuf::FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    const bool set = field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                          : reflection.HasField(message, field);
    if (!set) continue;
    visit(message, *field, prefix + field->name());
    if (!IsNested(*field)) continue;
    const std::string below = prefix + field->name() + ".";
    if constexpr (std::is_const_v<AnyMessage>) {
      VisitSetFields(reflection.GetMessage(message, field), below, visit);
    } else {
      VisitSetFields(*reflection.MutableMessage(&message, field), below, visit);
    }
  }
}

}  // namespace lockstep
