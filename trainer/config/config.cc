#include "trainer/config/config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/nearest.h"
#include "data/images/image_source.h"
#include "trainer/config/config_comments.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using config::existing_file;
using config::range;
using config::resumable;
using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

std::vector<const FieldDescriptor*> FieldsOf(const Descriptor& message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message.field_count(); ++i) fields.push_back(message.field(i));
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

// Every message type of the tree below `root`, `root` first.
void CollectMessages(const Descriptor& root, std::vector<const Descriptor*>& messages) {
  messages.push_back(&root);
  for (const FieldDescriptor* field : FieldsOf(root)) {
    if (field->message_type() != nullptr) CollectMessages(*field->message_type(), messages);
  }
}

bool IsNested(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_MESSAGE && !field.is_repeated();
}

// ---- What the parser says, said so that a user can act on it ------------------------------------

// Adds to a parser's message the field that it is about and the nearest name that would do.
std::string Explain(const std::string& message, const std::string& text_before) {
  std::vector<const Descriptor*> messages;
  CollectMessages(*Config::descriptor(), messages);
  std::smatch match;

  static const std::regex kUnknownField("Message type \"(.*)\" has no field named \"(.*)\"\\.");
  if (std::regex_match(message, match, kUnknownField)) {
    for (const Descriptor* type : messages) {
      if (type->full_name() != match[1]) continue;
      return fmt::format("{} has no field \"{}\"{}", type->name(), match[2].str(),
                         DidYouMean(match[2], NamesOf(FieldsOf(*type))));
    }
  }

  static const std::regex kUnknownValue(
      "Unknown enumeration value of \"(.*)\" for field \"(.*)\"\\.");
  if (std::regex_match(message, match, kUnknownValue)) {
    std::vector<std::string> values;
    for (const Descriptor* type : messages) {
      const FieldDescriptor* field = type->FindFieldByName(match[2]);
      if (field == nullptr || field->enum_type() == nullptr) continue;
      // Another message's field of that name.
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

// Keeps the first error; lines and columns of the parser count from 0.
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
  // The explanation as the tail of a line that names the field already; nothing without an error.
  std::string hint() const { return line_ == 0 ? "" : ": " + explanation_; }

 private:
  const std::string& text_;
  int line_ = 0;
  int column_ = 0;
  std::string explanation_;
};

// ---- Reading ------------------------------------------------------------------------------------

// Where each field's value was written, by dotted name: "path:line:column" or the --set that gave
// it.
using Origins = std::map<std::string, std::string>;

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

// Calls visit(message, field, dotted name) for every field that is set, depth first.
template <typename Visit>
void VisitSetFields(Message& message, const std::string& prefix, const Visit& visit) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    const bool set = field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                          : reflection.HasField(message, field);
    if (!set) continue;
    visit(message, *field, prefix + field->name());
    if (IsNested(*field)) {
      VisitSetFields(*reflection.MutableMessage(&message, field), prefix + field->name() + ".",
                     visit);
    }
  }
}

// The values of a string field, one or many.
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

// Makes the relative paths of `field` absolute.
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

constexpr size_t kMostText = size_t{16} << 20;  // of a config

// What a config looks like, for one who brings YAML or a table; nothing where its first field was read, unless the
// file's name says that it is something else.
std::string LooksLike(const fs::path& path, const std::string& text, int line) {
  static constexpr std::array<std::string_view, 5> kOthers{".yaml", ".yml", ".json", ".toml",
                                                           ".csv"};
  const bool is_other = std::ranges::find(kOthers, path.extension().string()) != kOthers.end();
  std::istringstream lines(text);
  std::string content;
  for (int i = is_other ? line : 1; i < line && std::getline(lines, content); ++i) {
    const size_t begin = content.find_first_not_of(" \t\r");
    if (begin != std::string::npos && content[begin] != '#') return "";
  }
  return "; a config looks like this: data { train: \"digits.csv\" } model { name: \"mlp\" } "
         "(lockstep config --template shows every field)";
}

Config ParseFile(const std::string& path, const std::string& text, Origins& origins) {
  Config config;
  TextFormat::ParseInfoTree tree;
  FirstError error(text);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(text, &config)) {
    throw UsageError("{}:{}:{}: {}{}", path, error.line(), error.column(), error.explanation(),
                     LooksLike(path, text, error.line()));
  }
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
                       DidYouMean(part, NamesOf(FieldsOf(type))));
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

  // Strings may come without quotes: a shell has eaten the user's.
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
  // Numbers may come as a list without its brackets.
  if (field->is_repeated() && field->type() != FieldDescriptor::TYPE_STRING &&
      value.find(',') != std::string::npos && !value.starts_with('[')) {
    value = '[' + value + ']';
  }
  // One value, or a list up to its end: never a second field behind it.
  const bool list =
      field->is_repeated() && value.starts_with('[') && value.find(']') + 1 == value.size();
  const std::string text = list ? field->name() + ": " + value : value;
  FirstError error(text);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  const bool parsed = list ? parser.MergeFromString(text, message)
                           : parser.ParseFieldValueFromString(text, field, message);
  if (!parsed) {
    throw UsageError("{}: field \"{}\" cannot be {}{}", origin, field->name(), value, error.hint());
  }
  Anchor(*message, *field, fs::current_path());
  // The messages that hold the field are given with it.
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    origins.try_emplace(name.substr(0, dot), origin);
  }
  origins[name] = origin;
}

// ---- Checking -----------------------------------------------------------------------------------

constexpr const char* kModelsWithOptions[] = {"mlp", "convnet", "lstm",       "resnet",
                                              "vit", "gpt2",    "torchscript"};

constexpr std::pair<const char*, config::Data::Format> kFormatsWithOptions[] = {
    {"csv", config::Data::CSV},       {"images", config::Data::IMAGES},
    {"npy", config::Data::NPY},       {"own", config::Data::OWN},
    {"tokens", config::Data::TOKENS}, {"synthetic", config::Data::SYNTHETIC}};

// Whether a config like this has the message `name` at all: each model's and each format's options are
// for that one alone.
bool HasMeaning(const Config& config, const std::string& name) {
  for (const char* model : kModelsWithOptions) {
    if (name == model) return config.model().name() == name;
  }
  for (const auto& [options, format] : kFormatsWithOptions) {
    if (name == options) return config.data().format() == format;
  }
  return name != "augment" || HoldsPixels(config.data());
}

enum class Files { kMustExist, kMayBeGone };

class Checker {
 public:
  Checker(Config& config, const std::string& path, const Origins& origins)
      : config_(config), path_(path), origins_(origins) {}

  void CheckAll(Files files) {
    VisitSetFields(config_, "",
                   [&](Message& message, const FieldDescriptor& field, const std::string& name) {
                     CheckRange(message, field, name);
                     if (files == Files::kMustExist) CheckFiles(message, field, name);
                   });
    CheckData();
    CheckModel();
    CheckOptimizer();
    CheckSchedule();
    // Which buckets are reduced before which of BatchNorm's collectives would differ between ranks.
    if (config_.ddp().sync_batch_norm() && config_.ddp().missing_gradient() == config::Ddp::ZERO) {
      Fail("ddp.sync_batch_norm", "does not go with missing_gradient: ZERO");
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& name, const std::string& what) const {
    const auto origin = origins_.find(name);
    throw UsageError("{}: {}: {}", origin == origins_.end() ? path_ : origin->second, name, what);
  }

  bool IsSet(const std::string& name) const { return origins_.contains(name); }

  void CheckRange(const Message& message, const FieldDescriptor& field,
                  const std::string& name) const {
    if (!field.options().HasExtension(range)) return;
    const config::Range& bounds = field.options().GetExtension(range);
    for (const double value : NumbersOf(message, field)) {
      // Written so that NaN fails.
      if (bounds.has_min() && !(value >= bounds.min()))
        Fail(name, fmt::format("{} is less than {}", value, bounds.min()));
      if (bounds.has_above() && !(value > bounds.above()))
        Fail(name, fmt::format("{} is not above {}", value, bounds.above()));
      if (bounds.has_max() && !(value <= bounds.max()))
        Fail(name, fmt::format("{} is more than {}", value, bounds.max()));
      if (bounds.has_below() && !(value < bounds.below()))
        Fail(name, fmt::format("{} is not below {}", value, bounds.below()));
      if (value > 1e300) Fail(name, fmt::format("{} is not finite", value));
    }
  }

  void CheckFiles(const Message& message, const FieldDescriptor& field,
                  const std::string& name) const {
    if (!field.options().GetExtension(existing_file)) return;
    const bool images = config_.data().format() == config::Data::IMAGES &&
                        (name == "data.train" || name == "data.validation");
    const bool own = config_.data().format() == config::Data::OWN;
    for (const std::string& file : StringsOf(message, field)) {
      if (file.empty()) {
        if (field.is_repeated()) Fail(name, "an empty name where a file's is to be");
        continue;
      }
      const bool shard = images && IsShardName(file);
      struct stat status {};
      if (stat(file.c_str(), &status) != 0) {
        if (errno != ENOENT) {
          Fail(name, fmt::format("{}: cannot be looked at: {}", file, std::strerror(errno)));
        }
        Fail(name, fmt::format("no such {}: {}", images && !shard ? "folder" : "file", file));
      }
      const bool is_folder = S_ISDIR(status.st_mode);
      if (own || (images && is_folder)) continue;
      if (!S_ISREG(status.st_mode)) {
        const bool of_data = name == "data.train" || name == "data.validation";
        Fail(name, fmt::format("{}: it is {} where a plain file is expected{}", file,
                               KindName(status.st_mode),
                               of_data && is_folder
                                   ? "; a folder with a folder of images for each class is "
                                     "data.format: IMAGES"
                                   : ""));
      }
      if (images && !shard) {
        Fail(name, fmt::format("neither a folder nor a .tar file: {}", file));
      }
    }
  }

  void CheckData() const {
    const config::Data& data = config_.data();
    constexpr int64_t kMostNumbers = int64_t{1} << 31;
    int64_t numbers = 1;
    for (const int64_t size : data.input_shape()) {
      if (__builtin_mul_overflow(numbers, size, &numbers) || numbers > kMostNumbers) {
        Fail("data.input_shape",
             fmt::format("[{}] is more than the {} numbers that a sample may have",
                         fmt::join(data.input_shape(), ", "), kMostNumbers));
      }
    }
    if (data.format() == config::Data::SYNTHETIC) {
      if (data.train_size() + data.validation_size() > 0) {
        Fail(data.train_size() > 0 ? "data.train" : "data.validation",
             "SYNTHETIC samples come from no file");
      }
      if (data.input_shape_size() == 0) Fail("data.input_shape", "SYNTHETIC samples need it");
      if (data.classes() == 0) Fail("data.classes", "SYNTHETIC samples need it");
      if (HoldsPixels(data) && data.input_shape_size() != 3) {
        Fail("data.input_shape", "PIXELS have three numbers: channels, height, width");
      }
    } else if (data.train_size() == 0 && data.format() != config::Data::OWN) {
      Fail("data.train", "name at least one file to train on");
    }
    if (data.validation_size() > 0 && data.validation_fraction() > 0) {
      Fail("data.validation_fraction", "data.validation is given too: choose one of the two");
    }
    if (const std::string two_files = TwoFilesText(data); !two_files.empty()) {
      if (data.train_size() != 2) Fail("data.train", two_files);
      if (data.validation_size() != 0 && data.validation_size() != 2) {
        Fail("data.validation", two_files);
      }
    }
    if (data.format() == config::Data::OWN && data.own().name().empty()) {
      Fail("data.own.name", "name the data set");
    }
    if (data.format() == config::Data::IMAGES) CheckImages();
    if (data.format() == config::Data::CIFAR10 && data.classes() != 0 && data.classes() != 10) {
      Fail("data.classes", "CIFAR10 has ten classes");
    }
    if (!HoldsPixels(data) && data.mean_size() + data.std_size() > 0) {
      Fail(data.mean_size() > 0 ? "data.mean" : "data.std",
           "is for pixels; for CSV use data.csv.standardize");
    }
    if (IsSet("data.augment") && !HasMeaning(config_, "augment")) {
      Fail("data.augment", "is for pixels");
    }
    for (const auto& [options, format] : kFormatsWithOptions) {
      const std::string name = std::string("data.") + options;
      if (IsSet(name) && !HasMeaning(config_, options)) {
        Fail(name,
             fmt::format("has no meaning for format {}", config::Data::Format_Name(data.format())));
      }
    }
    CheckCsv();
    CheckTask();
  }

  void CheckImageFiles(const std::string& name,
                       const google::protobuf::RepeatedPtrField<std::string>& files) const {
    if (files.size() > 1 && !std::all_of(files.begin(), files.end(), IsShardName)) {
      Fail(name,
           "IMAGES takes one folder, of classes' folders or tar files, or it takes tar files");
    }
  }

  void CheckImages() const {
    const config::Data& data = config_.data();
    CheckImageFiles("data.train", data.train());
    CheckImageFiles("data.validation", data.validation());
    if (data.images().min_area() > data.images().max_area()) {
      Fail("data.images.min_area", "is greater than max_area");
    }
    if (data.images().decode() == config::Images::GPU) {
      if (config_.device() == config::Config::CPU) {
        Fail("data.images.decode", "is GPU where device is CPU");
      }
      if (data.images().cache() == config::Images::DECODED) {
        Fail("data.images.decode", "GPU goes with cache: ENCODED or OFF, which keep no pixels");
      }
    }
    RequireDistinct("data.images.classes", data.images().classes());
    const int64_t size = data.images().size();
    if (data.input_shape_size() > 0 &&
        std::vector<int64_t>(data.input_shape().begin(), data.input_shape().end()) !=
            std::vector<int64_t>{3, size, size}) {
      Fail("data.input_shape", fmt::format("IMAGES are 3 x {0} x {0}: set data.images.size", size));
    }
  }

  void CheckCsv() const {
    const config::Csv& csv = config_.data().csv();
    if (csv.delimiter().size() != 1 ||
        csv.delimiter().find_first_of(std::string_view("\"\n\r\0", 4)) != std::string::npos) {
      Fail("data.csv.delimiter", "give one character that is no quote and no line break");
    }
    if (!csv.header() && !csv.label().empty()) {
      Fail("data.csv.label", "needs data.csv.header: true; without a header set label_column");
    }
    if (!csv.label().empty() && csv.label_column() != config::Csv().label_column()) {
      Fail("data.csv.label_column", "data.csv.label is given too: choose one of the two");
    }
    if (!csv.label().empty() && csv.label_columns() != config::Csv().label_columns()) {
      Fail("data.csv.label_columns", "data.csv.label is given too: name all label columns there");
    }
    RequireDistinct("data.csv.label", csv.label());
    if (!csv.header()) {
      RequireNumbers("data.csv.ignore", csv.ignore());
      RequireNumbers("data.csv.category", csv.category());
    }
    if (csv.standardize() && csv.scale() != config::Csv().scale()) {
      Fail("data.csv.scale", "has no meaning with data.csv.standardize");
    }
    if (csv.label_names() && config_.data().task() != config::Data::CLASSIFICATION) {
      Fail("data.csv.label_names", "is for CLASSIFICATION");
    }
    if (!csv.label_names() && csv.classes_size() > 0) {
      Fail("data.csv.classes", "needs data.csv.label_names: true");
    }
    RequireDistinct("data.csv.classes", csv.classes());
    const bool measured = csv.standardize() || csv.missing() == config::Csv::MEAN;
    for (const config::Csv::Column& column : csv.column()) {
      RequireDistinct("data.csv.column", column.category());
      if (!measured || column.category_size() > 0) continue;
      // Written so that NaN fails.
      if (!column.has_mean() || !std::isfinite(column.mean()) || !(column.std() > 0)) {
        Fail("data.csv.column",
             fmt::format("\"{}\" has no mean and standard deviation: leave out data.csv.column",
                         column.name()));
      }
    }
  }

  using Texts = google::protobuf::RepeatedPtrField<std::string>;

  // Without a header columns have no names.
  void RequireNumbers(const std::string& name, const Texts& columns) const {
    for (const std::string& column : columns) {
      if (!column.empty() && column.find_first_not_of("0123456789") == std::string::npos) continue;
      Fail(name, fmt::format("\"{}\" is no column's number (from 0): names need "
                             "data.csv.header: true",
                             column));
    }
  }

  void RequireDistinct(const std::string& name, const Texts& texts) const {
    std::set<std::string> seen;
    for (const std::string& text : texts) {
      if (!seen.insert(text).second) Fail(name, fmt::format("\"{}\" twice", text));
    }
  }

  void CheckTask() const {
    const config::Data& data = config_.data();
    const bool csv = data.format() == config::Data::CSV;
    const bool any_task = csv || data.format() == config::Data::NPY ||
                          data.format() == config::Data::SYNTHETIC ||
                          data.format() == config::Data::OWN;
    const bool has_classes = data.task() == config::Data::CLASSIFICATION;
    if (!has_classes && HoldsTokens(data)) {
      Fail("data.task", "tokens are for the next token's CLASSIFICATION");
    }
    if (!has_classes && !any_task) {
      Fail("data.task", config::Data::Format_Name(data.format()) + " holds classes");
    }
    const bool by_name = data.csv().label_size() > 0;
    const int64_t labels = by_name ? data.csv().label_size() : data.csv().label_columns();
    if (csv && has_classes && labels != 1) {
      Fail(by_name ? "data.csv.label" : "data.csv.label_columns",
           "CLASSIFICATION has one: set data.task to MULTI_LABEL or REGRESSION");
    }
    if (csv && !has_classes && data.classes() != 0 && data.classes() != labels) {
      Fail("data.classes", fmt::format("is {} where data.csv.label{}: leave it out", data.classes(),
                                       by_name ? fmt::format(" names {}", labels)
                                               : fmt::format("_columns is {}", labels)));
    }
    if (!has_classes && config_.model().label_smoothing() > 0) {
      Fail("model.label_smoothing", "is for classes");
    }
  }

  void CheckModel() const {
    for (const char* name : kModelsWithOptions) {
      if (IsSet(std::string("model.") + name) && !HasMeaning(config_, name)) {
        Fail(std::string("model.") + name,
             fmt::format("has no meaning for the model \"{}\"", config_.model().name()));
      }
    }
    if (config_.model().name() == "torchscript" && config_.model().torchscript().file().empty()) {
      Fail("model.torchscript.file", "name a file that torch.jit.save wrote");
    }
    if (config_.replace_head() && config_.init_from().empty()) {
      Fail("replace_head", "needs init_from: without it every layer starts at random");
    }
  }

  // Fails where `name` is not at its default although this kind of thing has no use for it.
  template <typename Value>
  void RequireDefault(const std::string& name, const Value& value, const Value& by_default,
                      bool has_meaning, const std::string& kind) const {
    if (has_meaning || value == by_default) return;
    Fail(name, "has no meaning for " + kind);
  }

  void CheckOptimizer() const {
    const config::Optimizer& optimizer = config_.optimizer();
    const config::Optimizer defaults;
    const std::string type = config::Optimizer::Type_Name(optimizer.type());
    const bool sgd = optimizer.type() == config::Optimizer::SGD;
    const bool lars = optimizer.type() == config::Optimizer::LARS;
    const bool by_norm = lars || optimizer.type() == config::Optimizer::LAMB;
    const bool adam = !sgd && !lars;
    RequireDefault("optimizer.momentum", optimizer.momentum(), defaults.momentum(), !adam, type);
    RequireDefault("optimizer.nesterov", optimizer.nesterov(), defaults.nesterov(), sgd, type);
    RequireDefault("optimizer.beta1", optimizer.beta1(), defaults.beta1(), adam, type);
    RequireDefault("optimizer.beta2", optimizer.beta2(), defaults.beta2(), adam, type);
    RequireDefault("optimizer.epsilon", optimizer.epsilon(), defaults.epsilon(), adam, type);
    RequireDefault("optimizer.trust", optimizer.trust(), defaults.trust(), lars, type);
    if (optimizer.nesterov() && optimizer.momentum() == 0) {
      Fail("optimizer.nesterov", "needs optimizer.momentum above 0");
    }
    if (by_norm && optimizer.shard()) {
      Fail("optimizer.shard", "does not go with " + type + ", which needs whole parameters' norms");
    }
    if (optimizer.clip_value() > 0 && optimizer.clip_norm() > 0) {
      Fail("optimizer.clip_value", "optimizer.clip_norm is given too: choose one of the two");
    }
    RequireDefault("optimizer.scaling_batch", optimizer.scaling_batch(), defaults.scaling_batch(),
                   optimizer.lr_scaling() != config::Optimizer::OFF, "lr_scaling: OFF");
  }

  void CheckSchedule() const {
    const config::Schedule& schedule = config_.schedule();
    const config::Schedule defaults;
    const auto type = schedule.type();
    const std::string kind = "a rate of type " + config::Schedule::Type_Name(type);
    RequireDefault("schedule.final_fraction", schedule.final_fraction(), defaults.final_fraction(),
                   type == config::Schedule::COSINE || type == config::Schedule::LINEAR ||
                       type == config::Schedule::ONE_CYCLE,
                   kind);
    RequireDefault("schedule.factor", schedule.factor(), defaults.factor(),
                   type == config::Schedule::STEP || type == config::Schedule::PLATEAU, kind);
    RequireDefault("schedule.every_steps", schedule.every_steps(), defaults.every_steps(),
                   type == config::Schedule::STEP, kind);
    RequireDefault("schedule.patience", schedule.patience(), defaults.patience(),
                   type == config::Schedule::PLATEAU, kind);
    const bool validates =
        config_.data().validation_size() > 0 || config_.data().validation_fraction() > 0;
    if (type == config::Schedule::PLATEAU && !validates) {
      Fail("schedule.type", "PLATEAU follows the validation loss: set data.validation_fraction");
    }
  }

  Config& config_;
  const std::string& path_;
  const Origins& origins_;
};

// Sets every field that is not set to its default, in `message` and those below it.
void FillDefaults(Message& message, const Config& config) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (field->is_repeated()) continue;
    if (IsNested(*field)) {
      if (!HasMeaning(config, field->name())) continue;
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

// ---- The template -------------------------------------------------------------------------------

using CommentLines = std::map<std::string, std::vector<std::string>>;

// The comments of config.proto: a field's or message's full name -> its comment's lines.
CommentLines Comments() {
  google::protobuf::FileDescriptorSet files;
  files.ParseFromArray(kConfigDescriptorSet, sizeof(kConfigDescriptorSet));
  const google::protobuf::FileDescriptorProto& file = files.file(0);
  CommentLines comments;
  for (const auto& location : file.source_code_info().location()) {
    // [4, i] is message i, [4, i, 2, j] its field j (descriptor.proto, SourceCodeInfo).
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

// One field under its comment, at its value in `message`; a message that is not set is commented
// out.
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

Config LoadConfig(const std::string& path, const std::vector<std::string>& assignments) {
  Origins origins;
  std::string why;
  const std::string text = ReadGivenFile(path, kMostText, why);
  if (!why.empty()) throw UsageError("{}: no config can be read from it: {}", path, why);
  Config config = ParseFile(path, text, origins);
  for (const std::string& assignment : assignments) Assign(assignment, config, origins);
  Checker(config, path, origins).CheckAll(Files::kMustExist);
  FillDefaults(config, config);
  if (config.run_dir().empty()) config.set_run_dir("runs/" + fs::path(path).stem().string());
  return config;
}

Config LoadRunConfig(const std::string& run_dir) {
  const std::string path = RunConfigPath(run_dir);
  Origins origins;
  std::string why;
  const std::string text = ReadPlainFile(path, kInRunFolder, kMostText, why);
  if (!why.empty()) throw UsageError("{}: no run's config: {}", path, why);
  Config config = ParseFile(path, text, origins);
  Checker(config, path, origins).CheckAll(Files::kMayBeGone);
  if (config.data().input_shape().empty() || config.data().classes() == 0) {
    throw UsageError("{}: not the config that a run left behind: name a run folder", path);
  }
  return config;
}

std::string RunConfigPath(const std::string& run_dir) { return run_dir + "/config.pbtxt"; }

std::string PrintConfig(const Config& config) {
  std::string text;
  TextFormat::PrintToString(config, &text);
  return text;
}

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

Config ParsePrinted(const std::string& text) {
  Config config;
  FirstError error(text);
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &config)) {
    throw UsageError("config of another program: {}", error.explanation());
  }
  FillDefaults(config, config);
  return config;
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

bool HoldsTokens(const config::Data& data) {
  switch (data.format()) {
    case config::Data::SYNTHETIC:
      return data.synthetic().kind() == config::Synthetic::TOKENS;
    case config::Data::OWN:
      return data.own().kind() == config::Own::TOKENS;
    default:
      return data.format() == config::Data::TOKENS;
  }
}

bool HoldsPixels(const config::Data& data) {
  switch (data.format()) {
    case config::Data::SYNTHETIC:
      return data.synthetic().kind() == config::Synthetic::PIXELS;
    case config::Data::NPY:
      return data.npy().kind() == config::Npy::PIXELS;
    case config::Data::OWN:
      return data.own().kind() == config::Own::PIXELS;
    default:
      return data.format() == config::Data::MNIST || data.format() == config::Data::CIFAR10 ||
             data.format() == config::Data::IMAGES;
  }
}

std::string TwoFilesText(const config::Data& data) {
  if (data.format() == config::Data::MNIST) return "MNIST takes two files: images, labels";
  if (data.format() == config::Data::NPY) return "NPY takes two files: inputs, targets";
  return "";
}

std::string ConfigTemplate() {
  Config config;
  FillDefaults(config, config);
  return TemplateOf(config, Comments());
}

}  // namespace lockstep
