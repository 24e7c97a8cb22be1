#include "config/edit_config.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "config/read_config.h"

namespace lockstep {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;
using Tree = TextFormat::ParseInfoTree;

// At a tab, protobuf's parser counts columns up to the next multiple of eight.
constexpr int kTabWidth = 8;

size_t OffsetOf(const std::string& text, const TextFormat::ParseLocation& location) {
  size_t at = 0;
  for (int line = 0; line < location.line; ++line) at = text.find('\n', at) + 1;
  for (int column = 0; column < location.column; ++at) {
    column += text[at] == '\t' ? kTabWidth - column % kTabWidth : 1;
  }
  return at;
}

size_t LineBegin(const std::string& text, size_t at) {
  const size_t before = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  return before == std::string::npos ? 0 : before + 1;
}

std::string IndentOf(const std::string& text, size_t line_begin) {
  const size_t end = text.find_first_not_of(" \t", line_begin);
  return text.substr(line_begin, (end == std::string::npos ? text.size() : end) - line_begin);
}

void InsertComment(std::string& text, size_t at, const std::string& why) {
  if (why.empty()) return;
  const size_t line = LineBegin(text, at);
  text.insert(line, fmt::format("{}# {}\n", IndentOf(text, line), why));
}

// Returns the field of `type` whose name is the first part of a dotted name: "data" for "data.images.cache".
const FieldDescriptor* FieldOf(const Descriptor& type, std::string_view name) {
  return type.FindFieldByName(std::string(name.substr(0, name.find('.'))));
}

// Returns "images { cache: ENCODED }" for the name "images.cache" and the value "ENCODED".
std::string AssignmentText(std::string_view name, const std::string& value) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return fmt::format("{}: {}", name, value);
  return fmt::format("{} {{ {} }}", name.substr(0, dot),
                     AssignmentText(name.substr(dot + 1), value));
}

void Edit(const std::string& path, std::string& text, const FieldEdit& edit) {
  config::Config config;
  Tree tree;
  TextFormat::Parser parser;
  parser.WriteLocationsTo(&tree);
  std::string why_not;
  ParseText(text, why_not);
  if (!why_not.empty() || !parser.ParseFromString(text, &config)) {
    throw UsageError("{}: {}", path, why_not);
  }
  // Finds the innermost message that contains the field and is present in the text.
  std::string_view rest = edit.name;
  const Descriptor* type = config::Config::descriptor();
  const Tree* fields = &tree;
  std::optional<size_t> begin;  // where that message begins; nothing: that message is the config
  const FieldDescriptor* field = FieldOf(*type, rest);
  while (rest.find('.') != std::string_view::npos) {
    const Tree* nested = fields->GetTreeForNested(field, -1);
    if (nested == nullptr) break;
    begin = OffsetOf(text, fields->GetLocationRange(field, -1).start);
    fields = nested;
    type = field->message_type();
    rest.remove_prefix(rest.find('.') + 1);
    field = FieldOf(*type, rest);
  }
  const std::string assignment = AssignmentText(rest, edit.value);
  const TextFormat::ParseLocationRange range = fields->GetLocationRange(field, -1);
  if (range.start.line >= 0) {
    const size_t at = OffsetOf(text, range.start);
    text.replace(at, OffsetOf(text, range.end) - at, assignment);
    InsertComment(text, at, edit.why);
    return;
  }
  if (!begin) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    if (!edit.why.empty()) text += fmt::format("# {}\n", edit.why);
    text += assignment + '\n';
    return;
  }
  // The field is inserted after the message's opening brace, on a line of its own if the brace is the last character of
  // its line.
  const size_t inside = text.find_first_of("{<", *begin) + 1;
  if (text[inside] == '\n') {
    const std::string indent = IndentOf(text, LineBegin(text, *begin)) + "  ";
    std::string lines = edit.why.empty() ? "" : fmt::format("\n{}# {}", indent, edit.why);
    text.insert(inside, fmt::format("{}\n{}{}", lines, indent, assignment));
    return;
  }
  text.insert(inside, " " + assignment);
  InsertComment(text, *begin, edit.why);
}

}  // namespace

std::string EditedConfig(const std::string& path, const std::string& text,
                         const std::vector<FieldEdit>& edits) {
  std::string edited = text;
  for (const FieldEdit& edit : edits) Edit(path, edited, edit);
  return edited;
}

std::string FieldText(const config::Config& config, const std::string& name) {
  std::string_view rest = name;
  const google::protobuf::Message* message = &config;
  const FieldDescriptor* field = FieldOf(*message->GetDescriptor(), rest);
  while (rest.find('.') != std::string_view::npos) {
    message = &message->GetReflection()->GetMessage(*message, field);
    rest.remove_prefix(rest.find('.') + 1);
    field = FieldOf(*message->GetDescriptor(), rest);
  }
  std::string text;
  TextFormat::PrintFieldValueToString(*message, field, -1, &text);
  return text;
}

}  // namespace lockstep
