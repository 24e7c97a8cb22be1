#include "config/read_config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/nearest.h"
#include "config/schema/fields.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using config::Config;
using config::existing_file;
using config::former;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

// Collects the message types in the tree below `root`, with `root` first.
void CollectMessages(const Descriptor& root, std::vector<const Descriptor*>& messages) {
  messages.push_back(&root);
  for (const FieldDescriptor* field : FieldsOf(root)) {
    if (field->message_type() != nullptr) CollectMessages(*field->message_type(), messages);
  }
}

// Returns the dotted path, such as "optimizer.lr", of a field called `name` in `message` or in the messages in it;
// empty if there is no such field.
std::string PlaceOf(const std::string& name, const Descriptor& message) {
  const std::vector<const FieldDescriptor*> fields = FieldsOf(message);
  for (const FieldDescriptor* field : fields) {
    if (field->name() == name) return name;
  }
  for (const FieldDescriptor* field : fields) {
    if (!IsNested(*field)) continue;
    const std::string below = PlaceOf(name, *field->message_type());
    if (!below.empty()) return fmt::format("{}.{}", field->name(), below);
  }
  return "";
}

// Returns the end of an error message, which suggests the field that the user most likely meant: a field of `message`
// or of another message. Returns an empty text if no field is likely.
std::string MeantField(const std::string& name, const Descriptor& message) {
  std::string near = DidYouMean(name, NamesOf(FieldsOf(message)));
  if (!near.empty()) return near;
  const std::string place = PlaceOf(name, *Config::descriptor());
  return place.empty() ? "" : fmt::format("; did you mean \"{}\"?", place);
}

// Returns the parser's error `message` with the name of the field and, for an unknown field or value, the most similar
// valid name. `text_before` is the line of the config up to the error.
std::string Explain(const std::string& message, const std::string& text_before) {
  std::vector<const Descriptor*> messages;
  CollectMessages(*Config::descriptor(), messages);
  std::smatch match;

  static const std::regex kUnknownField("Message type \"(.*)\" has no field named \"(.*)\"\\.");
  if (std::regex_match(message, match, kUnknownField)) {
    for (const Descriptor* type : messages) {
      if (type->full_name() != match[1]) continue;
      return fmt::format("{} has no field \"{}\"{}", type->name(), match[2].str(),
                         MeantField(match[2], *type));
    }
  }

  static const std::regex kUnknownValue(
      "Unknown enumeration value of \"(.*)\" for field \"(.*)\"\\.");
  if (std::regex_match(message, match, kUnknownValue)) {
    std::vector<std::string> values;
    for (const Descriptor* type : messages) {
      const FieldDescriptor* field = type->FindFieldByName(match[2]);
      if (field == nullptr || field->enum_type() == nullptr) continue;
      // If the value is valid for this field, the error is about a field of the same name in another message.
      if (field->enum_type()->FindValueByName(match[1]) != nullptr) continue;
      for (const std::string& value : NamesOf(*field->enum_type())) values.push_back(value);
    }
    return fmt::format("field \"{}\" cannot be \"{}\"{}", match[2].str(), match[1].str(),
                       DidYouMean(match[1], values));
  }

  static const std::regex kLastField("([A-Za-z_]\\w*)\\s*:\\s*(\\[[^\\]]*)?$");
  if (std::regex_search(text_before, match, kLastField)) {
    return fmt::format("field \"{}\": {}", match[1].str(), message);
  }
  return message;
}

// Keeps the parser's first error. The parser counts lines and columns from 0, and this class from 1.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(const std::string& text) : text_(text) {}

  void AddError(int line, int column, const std::string& message) override {
    if (line_ > 0) return;
    std::istringstream lines(text_);
    std::string content;
    for (int i = 0; i <= std::max(line, 0); ++i) std::getline(lines, content);
    const std::string before =
        content.substr(0, std::min<size_t>(std::max(column, 0), content.size()));
    explanation_ = Explain(message, before);
    line_ = line + 1;
    column_ = column + 1;
  }
  void AddWarning(int, int, const std::string&) override {}

  int line() const { return line_; }
  int column() const { return column_; }
  const std::string& explanation() const { return explanation_; }
  // Returns the reason why the field cannot have the value, in a text that names the field and the value.
  std::string WhyNot(const std::string& field, const std::string& value) const {
    if (explanation_.starts_with("field \"")) return explanation_;
    const std::string tail = line_ == 0 ? "" : ": " + explanation_;
    return fmt::format("field \"{}\" cannot be {}{}", field, value, tail);
  }

 private:
  const std::string& text_;
  int line_ = 0;
  int column_ = 0;
  std::string explanation_;
};

// Passes an error to `error` if a number in `text`, which has been parsed, is not 0 although float64 keeps it as 0.
void RefuseVanished(const std::string& text, FirstError& error) {
  using google::protobuf::io::Tokenizer;
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  Tokenizer tokens(&stream, &error);
  tokens.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
  tokens.set_allow_f_after_float(true);
  tokens.set_require_space_after_number(false);
  while (tokens.Next()) {
    const auto& [type, number, line, column, end] = tokens.current();
    if (type != Tokenizer::TYPE_FLOAT || Tokenizer::ParseFloat(number) != 0) continue;
    const std::string digits = number.substr(0, number.find_first_of("eE"));
    if (digits.find_first_of("123456789") == digits.npos) continue;
    error.AddError(line, column, number + " is too near 0 for float64: write 0 if that is meant");
  }
}

void CollectOrigins(const Message& message, TextFormat::ParseInfoTree& tree,
                    const std::string& path, const std::string& prefix, Origins& origins) {
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    const int index = field->is_repeated() ? 0 : -1;
    const TextFormat::ParseLocation location = tree.GetLocation(field, index);
    if (location.line < 0) continue;
    origins[prefix + field->name()] =
        fmt::format("{}:{}:{}", path, location.line + 1, location.column + 1);
    if (!IsNested(*field)) continue;
    CollectOrigins(message.GetReflection()->GetMessage(message, field),
                   *tree.GetTreeForNested(field, index), path, prefix + field->name() + ".",
                   origins);
  }
}

// Throws Error (kUsage) if the config has a field of this message type that only earlier versions had.
void RefuseFormer(const Descriptor& type, TextFormat::ParseInfoTree& tree, const std::string& path,
                  const std::string& prefix) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    const TextFormat::ParseLocation at = tree.GetLocation(field, field->is_repeated() ? 0 : -1);
    if (at.line < 0) continue;
    if (field->options().HasExtension(former)) {
      throw UsageError("{}:{}:{}: {}{} {}", path, at.line + 1, at.column + 1, prefix, field->name(),
                       field->options().GetExtension(former));
    }
    if (!IsNested(*field)) continue;
    RefuseFormer(*field->message_type(), *tree.GetTreeForNested(field, -1), path,
                 prefix + field->name() + ".");
  }
}

// Translates fields that only earlier versions had to the current fields.
void BringUpToDate(Config& config) {
  if (!config.data().csv().has_standardize()) return;
  config::Csv& csv = *config.mutable_data()->mutable_csv();
  if (csv.standardize()) csv.set_scaling(config::Csv::STANDARD);
  csv.clear_standardize();
}

// Makes relative paths absolute if `field` holds paths of files. The relative paths begin at `folder`.
void Anchor(Message& message, const FieldDescriptor& field, const fs::path& folder) {
  if (!field.options().GetExtension(existing_file)) return;
  const Reflection& reflection = *message.GetReflection();
  const std::vector<std::string> values = StringsOf(message, field);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty()) continue;
    const std::string anchored = fs::absolute(folder / values[i]).lexically_normal().string();
    if (field.is_repeated()) {
      reflection.SetRepeatedString(&message, &field, static_cast<int>(i), anchored);
    } else {
      reflection.SetString(&message, &field, anchored);
    }
  }
}

// Returns an example of a config, as the end of an error message, if the file is probably not a config; otherwise an
// empty text. A file is probably not a config in two cases: its extension is that of YAML, JSON, TOML or CSV; or no
// line before the line of the error has content other than a comment, and the error suggests no other name.
std::string LooksLike(const fs::path& path, const std::string& text, const FirstError& error) {
  static constexpr std::array<std::string_view, 5> kOthers{".yaml", ".yml", ".json", ".toml",
                                                           ".csv"};
  const bool is_other = std::ranges::find(kOthers, path.extension().string()) != kOthers.end();
  if (!is_other && error.explanation().find("did you mean") != std::string::npos) return "";
  std::istringstream lines(text);
  std::string content;
  for (int i = is_other ? error.line() : 1; i < error.line() && std::getline(lines, content); ++i) {
    const size_t begin = content.find_first_not_of(" \t\r");
    if (begin != std::string::npos && content[begin] != '#') return "";
  }
  return "; a config looks like this: data { train: \"digits.csv\" } model { name: \"mlp\" } "
         "(lockstep config --template shows every field)";
}

}  // namespace

Config ParseFile(const std::string& path, const std::string& text, FormerFields former_fields,
                 Origins& origins) {
  Config config;
  TextFormat::ParseInfoTree tree;
  FirstError error(text);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(text, &config)) {
    throw UsageError("{}:{}:{}: {}{}", path, error.line(), error.column(), error.explanation(),
                     LooksLike(path, text, error));
  }
  RefuseVanished(text, error);
  if (error.line() > 0) {
    throw UsageError("{}:{}:{}: {}", path, error.line(), error.column(), error.explanation());
  }
  if (former_fields == FormerFields::kRefuse) RefuseFormer(*Config::descriptor(), tree, path, "");
  BringUpToDate(config);
  CollectOrigins(config, tree, path, "", origins);
  VisitSetFields(config, "",
                 [&](Message& message, const FieldDescriptor& field, const std::string&) {
                   Anchor(message, field, fs::absolute(path).parent_path());
                 });
  return config;
}

void Assign(const std::string& assignment, Config& config, Origins& origins) {
  const std::string origin = "--set " + assignment;
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    throw UsageError("{}: no \"=\": write --set optimizer.lr=0.01, say", origin);
  }
  const std::string name = assignment.substr(0, equals);
  std::string value = assignment.substr(equals + 1);

  Message* message = &config;
  const FieldDescriptor* field = nullptr;
  std::istringstream parts(name);
  for (std::string part; std::getline(parts, part, '.');) {
    if (field != nullptr) {
      if (!IsNested(*field))
        throw UsageError("{}: {} has no fields of its own", origin, field->name());
      message = message->GetReflection()->MutableMessage(message, field);
    }
    const Descriptor& type = *message->GetDescriptor();
    field = type.FindFieldByName(part);
    if (field == nullptr) {
      throw UsageError("{}: {} has no field \"{}\"{}", origin, type.name(), part,
                       MeantField(part, type));
    }
    if (field->options().HasExtension(former)) {
      throw UsageError("{}: {} {}", origin, name, field->options().GetExtension(former));
    }
  }
  if (field == nullptr) throw UsageError("{}: no field is named before \"=\"", origin);
  if (field->type() == FieldDescriptor::TYPE_MESSAGE && field->is_repeated()) {
    throw UsageError("{}: {} is a list of blocks: write them into the config", origin, name);
  }
  if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
    throw UsageError("{}: {} holds fields: set one of them ({}.{}=...)", origin, name, name,
                     field->message_type()->field(0)->name());
  }

  // A string may come without quotes, because the shell has removed them.
  const bool quoted = value.starts_with('"') || value.starts_with('\'');
  if (field->type() == FieldDescriptor::TYPE_STRING && !quoted && !value.starts_with('[')) {
    std::string escaped;
    for (const char c : value) {
      if (c == '\\' || c == '"') escaped += '\\';
      escaped += c;
    }
    value = '"' + escaped + '"';
  }
  message->GetReflection()->ClearField(message, field);
  // A list of numbers may come without brackets.
  if (field->is_repeated() && field->type() != FieldDescriptor::TYPE_STRING &&
      value.find(',') != std::string::npos && !value.starts_with('[')) {
    value = '[' + value + ']';
  }
  // `value` must be exactly one value or one list; a second field after it is an error.
  const bool list =
      field->is_repeated() && value.starts_with('[') && value.find(']') + 1 == value.size();
  const std::string text = list ? field->name() + ": " + value : value;
  FirstError error(text);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  const bool parsed = list ? parser.MergeFromString(text, message)
                           : parser.ParseFieldValueFromString(text, field, message);
  if (parsed) RefuseVanished(text, error);
  if (!parsed || error.line() > 0) {
    throw UsageError("{}: {}", origin, error.WhyNot(field->name(), value));
  }
  Anchor(*message, *field, fs::current_path());
  // The user has thereby also set the messages that contain the field.
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    origins.try_emplace(name.substr(0, dot), origin);
  }
  origins[name] = origin;
}

config::Config ParseText(const std::string& text, std::string& why) {
  config::Config config;
  FirstError error(text);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &config)) why = error.explanation();
  BringUpToDate(config);
  return config;
}

}  // namespace lockstep
