#include "config/config_template.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "config/defaults.h"
#include "config/schema/config.pb.h"
#include "config/schema/fields.h"
#include "config/schema/schema_comments.h"

namespace lockstep {
namespace {

using config::Config;
using config::range;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

using CommentLines = std::map<std::string, std::vector<std::string>>;

// Adds the comments in one file of the schema to `comments`.
void Collect(const google::protobuf::FileDescriptorProto& file, CommentLines& comments) {
  for (const auto& location : file.source_code_info().location()) {
    // The path [4, i] is message i, and [4, i, 2, j] is its field j (descriptor.proto, SourceCodeInfo).
    const bool is_message = location.path_size() == 2 && location.path(0) == 4;
    const bool is_field =
        location.path_size() == 4 && location.path(0) == 4 && location.path(2) == 2;
    if (!is_message && !is_field) continue;
    const auto& message = file.message_type(location.path(1));
    std::string name = file.package() + "." + message.name();
    if (is_field) name += "." + message.field(location.path(3)).name();
    std::istringstream lines(location.leading_comments());
    for (std::string line; std::getline(lines, line);) comments[name].push_back(line);
  }
}

// Returns the comments of the schema: the full name of a field or message -> the lines of its comment.
CommentLines Comments() {
  google::protobuf::FileDescriptorSet files;
  files.ParseFromArray(kSchemaDescriptorSet, sizeof(kSchemaDescriptorSet));
  CommentLines comments;
  for (const google::protobuf::FileDescriptorProto& file : files.file()) Collect(file, comments);
  return comments;
}

std::string RangeText(const config::Range& bounds) {
  std::vector<std::string> parts;
  if (bounds.has_min()) parts.push_back(fmt::format("at least {}", bounds.min()));
  if (bounds.has_above()) parts.push_back(fmt::format("above {}", bounds.above()));
  if (bounds.has_max()) parts.push_back(fmt::format("at most {}", bounds.max()));
  if (bounds.has_below()) parts.push_back(fmt::format("below {}", bounds.below()));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Puts `prefix` before every line that is not empty.
std::string Prefixed(const std::string& prefix, const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);)
    out += (line.empty() ? "" : prefix + line) + "\n";
  return out;
}

std::string TemplateOf(const Message& message, const CommentLines& comments);

// Returns the text of one field, with its comment above and its value in `message`. A message that is not set is
// commented out.
std::string TemplateOf(const Message& message, const FieldDescriptor& field,
                       const CommentLines& comments) {
  const Reflection& reflection = *message.GetReflection();
  std::string out;
  const std::string& commented =
      IsNested(field) ? field.message_type()->full_name() : field.full_name();
  if (const auto comment = comments.find(commented); comment != comments.end()) {
    for (const std::string& line : comment->second) out += "#" + line + "\n";
  }
  if (field.enum_type() != nullptr) {
    out += fmt::format("# One of {}.\n", fmt::join(NamesOf(*field.enum_type()), ", "));
  }
  if (field.options().HasExtension(range)) {
    out += fmt::format("# Range: {}.\n", RangeText(field.options().GetExtension(range)));
  }
  if (IsNested(field)) {
    std::string block =
        field.name() + " {\n" +
        Prefixed("  ", TemplateOf(reflection.GetMessage(message, &field), comments)) + "}\n";
    out += reflection.HasField(message, &field) ? block : Prefixed("# ", block);
  } else if (field.is_repeated()) {
    out += field.name() + ": []\n";
  } else {
    std::string value;
    TextFormat::PrintFieldValueToString(message, &field, -1, &value);
    out += field.name() + ": " + value + "\n";
  }
  return out;
}

std::string TemplateOf(const Message& message, const CommentLines& comments) {
  std::string out;
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (!out.empty()) out += "\n";
    out += TemplateOf(message, *field, comments);
  }
  return out;
}

}  // namespace

std::string ConfigTemplate() {
  Config config;
  FillDefaults(config, config);
  return TemplateOf(config, Comments());
}

}  // namespace lockstep
