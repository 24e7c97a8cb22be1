#include "models/imported/program.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/alias_info.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "models/imported/operations.h"

namespace lockstep::exported {
namespace {

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;
using Json = nlohmann::json;

// The greatest number of values that is accepted. A file with more values is damaged, or was made to exhaust the
// memory.
constexpr int64_t kMostValues = 1'000'000;

struct SymName {
  std::string_view name;
  Sym sym;
  size_t arguments;
};

constexpr SymName kSyms[] = {{"size", Sym::kSize, 2},
                             {"stride", Sym::kStride, 2},
                             {"numel", Sym::kNumel, 1},
                             {"add", Sym::kAdd, 2},
                             {"sub", Sym::kSub, 2},
                             {"mul", Sym::kMul, 2},
                             {"floordiv", Sym::kFloorDiv, 2},
                             {"mod", Sym::kMod, 2},
                             {"truediv", Sym::kTrueDiv, 2},
                             {"pow", Sym::kPow, 2},
                             {"neg", Sym::kNeg, 1},
                             {"min", Sym::kMin, 2},
                             {"max", Sym::kMax, 2},
                             {"ceil", Sym::kCeil, 1},
                             {"floor", Sym::kFloor, 1},
                             {"trunc", Sym::kTrunc, 1},
                             {"float", Sym::kFloat, 1},
                             {"sqrt", Sym::kSqrt, 1},
                             {"eq", Sym::kEq, 2},
                             {"ne", Sym::kNe, 2},
                             {"lt", Sym::kLt, 2},
                             {"le", Sym::kLe, 2},
                             {"gt", Sym::kGt, 2},
                             {"ge", Sym::kGe, 2},
                             {"not", Sym::kNot, 1},
                             {"ite", Sym::kIte, 3}};

const std::unordered_set<std::string_view>& AllowedOperations() {
  static const std::unordered_set<std::string_view> kAllowed(std::begin(kOperations),
                                                             std::end(kOperations));
  return kAllowed;
}

// Returns the text of a JSON value for an error message. For a list or an object, returns only its type, because it may
// be nested very deeply.
std::string Shown(const Json& json) {
  return json.is_structured() ? std::string("an ") + json.type_name() : json.dump();
}

const Json& Member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key))
    throw UsageError("{}: there is no \"{}\"", where, key);
  return object[key];
}

int64_t Integer(const Json& json, const std::string& where) {
  const bool fits =
      json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX);
  if (!fits) throw UsageError("{}: {} is no integer", where, Shown(json));
  return json.get<int64_t>();
}

std::string Text(const Json& json, const std::string& where) {
  if (!json.is_string()) throw UsageError("{}: {} is no text", where, Shown(json));
  return json.get<std::string>();
}

double Float(const Json& json, const std::string& where) {
  if (json.is_number()) return json.get<double>();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw UsageError("{}: {} is no number", where, Shown(json));
}

at::ScalarType DtypeOf(const Json& json, const std::string& where) {
  static const std::map<std::string, at::ScalarType> kDtypes{
      {"float32", at::kFloat},     {"float64", at::kDouble}, {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16}, {"int64", at::kLong},     {"int32", at::kInt},
      {"int16", at::kShort},       {"int8", at::kChar},      {"uint8", at::kByte},
      {"bool", at::kBool}};
  const auto found = kDtypes.find(Text(json, where));
  if (found == kDtypes.end()) throw UsageError("{}: there is no dtype {}", where, Shown(json));
  return found->second;
}

at::MemoryFormat MemoryFormatOf(const Json& json, const std::string& where) {
  static const std::map<std::string, at::MemoryFormat> kFormats{
      {"contiguous_format", at::MemoryFormat::Contiguous},
      {"preserve_format", at::MemoryFormat::Preserve},
      {"channels_last", at::MemoryFormat::ChannelsLast},
      {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}};
  const auto found = kFormats.find(Text(json, where));
  if (found == kFormats.end())
    throw UsageError("{}: there is no memory format {}", where, Shown(json));
  return found->second;
}

IValue WrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

// Returns the element type that the dispatcher expects in a boxed list: int for sizes, dtypes, layouts and memory
// formats.
TypePtr BoxedType(const TypePtr& type) {
  switch (type->kind()) {
    case TypeKind::SymIntType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
      return c10::IntType::get();
    default:
      return type;
  }
}

// ---- Reading ------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(std::string where, int64_t values) : where_(std::move(where)), known_(values, false) {}

  // Reads the number of a value that is defined at this place. Throws Error (kUsage) if the value was defined before.
  int64_t Arises(const Json& json) {
    const int64_t id = Integer(json, where_);
    if (id < 0 || id >= static_cast<int64_t>(known_.size()))
      throw UsageError("{}: there is no value {}", where_, id);
    if (known_[id]) throw UsageError("{}: value {} arises twice", where_, id);
    known_[id] = true;
    return id;
  }

  // Reads the number of a value that was defined before.
  int64_t Used(const Json& json) {
    const int64_t id = Integer(json, where_);
    if (id < 0 || id >= static_cast<int64_t>(known_.size()) || !known_[id]) {
      throw UsageError("{}: value {} is used before it arises", where_, id);
    }
    return id;
  }

  Argument Decode(const Json& json, const TypePtr& type) {
    Argument argument;
    if (json.is_object() && json.contains("v")) {
      const TypeKind kind = type->kind() == TypeKind::OptionalType
                                ? type->expectRef<c10::OptionalType>().getElementType()->kind()
                                : type->kind();
      argument.kind = Argument::Kind::kValue;
      argument.value = Used(json["v"]);
      argument.to_float = kind == TypeKind::FloatType;
      return argument;
    }
    switch (type->kind()) {
      case TypeKind::OptionalType:
        if (json.is_null()) return argument;
        return Decode(json, type->expectRef<c10::OptionalType>().getElementType());
      case TypeKind::ListType: {
        if (!json.is_array()) break;
        argument.kind = Argument::Kind::kList;
        argument.element_type = type->expectRef<c10::ListType>().getElementType();
        bool is_constant = true;
        for (const Json& element : json) {
          argument.elements.push_back(Decode(element, argument.element_type));
          is_constant &= argument.elements.back().kind == Argument::Kind::kConstant;
        }
        argument.element_type = BoxedType(argument.element_type);
        if (!is_constant) return argument;
        std::vector<IValue> elements;
        for (Argument& element : argument.elements) elements.push_back(element.constant);
        return {.constant = ListOf(argument.element_type, std::move(elements))};
      }
      case TypeKind::TensorType:
        // As in Python's x + 1, a wrapped number does not change the dtype of the operation's result.
        if (json.is_number_integer()) return {.constant = WrappedNumber(Integer(json, where_))};
        if (!json.is_object() || !json.contains("f")) break;
        return {.constant = WrappedNumber(Float(json["f"], where_))};
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return {.constant = Integer(json, where_)};
      case TypeKind::FloatType:
        if (!json.is_object() || !json.contains("f")) break;
        return {.constant = Float(json["f"], where_)};
      case TypeKind::BoolType:
        if (!json.is_boolean()) break;
        return {.constant = json.get<bool>()};
      case TypeKind::NumberType:
        if (json.is_boolean()) return {.constant = json.get<bool>()};
        if (json.is_object() && json.contains("f")) return {.constant = Float(json["f"], where_)};
        return {.constant = Integer(json, where_)};
      case TypeKind::StringType:
        return {.constant = Text(json, where_)};
      case TypeKind::ScalarTypeType:
        if (!json.is_object() || !json.contains("dtype")) break;
        return {.constant = static_cast<int64_t>(DtypeOf(json["dtype"], where_))};
      case TypeKind::LayoutType:
        if (json != Json{{"layout", "strided"}}) break;
        return {.constant = static_cast<int64_t>(at::kStrided)};
      case TypeKind::MemoryFormatType:
        // An integer occurs where the file holds the default value of a schema.
        if (json == static_cast<int64_t>(at::MemoryFormat::Contiguous))
          return {.constant = json.get<int64_t>()};
        if (!json.is_object() || !json.contains("memory_format")) break;
        return {.constant = static_cast<int64_t>(MemoryFormatOf(json["memory_format"], where_))};
      case TypeKind::DeviceObjType:
        if (json != Json{{"device", "input"}}) break;
        argument.kind = Argument::Kind::kDevice;
        return argument;
      default:
        break;
    }
    throw UsageError("{}: {} stands for {}", where_, Shown(json), type->repr_str());
  }

  Node ReadNode(const Json& json) {
    Node node;
    if (json.is_object() && json.contains("sym")) {
      ReadSym(json, node);
      return node;
    }
    const std::string op = Text(Member(json, "op", where_), where_);
    const std::string overload = Text(Member(json, "overload", where_), where_);
    const std::string full = overload.empty() ? op : op + "." + overload;
    if (!AllowedOperations().contains(full)) {
      throw UsageError("{}: operation {} is not one that an exported model may call", where_, full);
    }
    // torch.export traces the user's reshape() as a view if the tensor was contiguous in memory. When the program runs,
    // the tensor may be laid out otherwise, so each view is replaced by a reshape, which makes a copy only where it
    // must.
    const bool is_view = full == "aten::view" || full == "aten::_unsafe_view";
    node.operation =
        c10::Dispatcher::singleton().findSchema({is_view ? "aten::reshape" : op, overload});
    if (!node.operation) throw UsageError("{}: this LibTorch has no operation {}", where_, full);
    node.name = full;
    if (const std::string module = json.value("module", ""); !module.empty())
      node.name += " of " + module;
    if (const std::string line = json.value("line", ""); !line.empty())
      node.name += " (" + line + ")";
    node.call = CallerOf(op);
    node.unforeseen = has_strides_ ? Parts() : UnforeseenParts(op);
    node.grad = json.value("grad", true);
    node.autocast = json.value("autocast", true);
    const c10::FunctionSchema& schema = node.operation->schema();
    const Json& arguments = Member(json, "args", where_);
    if (!arguments.is_array() || arguments.size() > schema.arguments().size()) {
      throw UsageError("{}: {} takes {} arguments", where_, full, schema.arguments().size());
    }
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& expected = schema.arguments()[i];
      if (i < arguments.size()) {
        node.arguments.push_back(Decode(arguments[i], expected.real_type()));
      } else if (expected.default_value()) {
        node.arguments.push_back({.constant = *expected.default_value()});
      } else {
        throw UsageError("{}: {} lacks argument {}", where_, full, expected.name());
      }
    }
    ReadResults(Member(json, "out", where_), full, schema, node);
    return node;
  }

 private:
  void ReadSym(const Json& json, Node& node) {
    const std::string name = Text(json["sym"], where_);
    const auto* sym = std::ranges::find(kSyms, name, &SymName::name);
    const Json& arguments = Member(json, "args", where_);
    const Json& out = Member(json, "out", where_);
    if (sym == std::end(kSyms) || !arguments.is_array() || arguments.size() != sym->arguments ||
        !out.is_array() || out.size() != 1) {
      throw UsageError("{}: {} is no number to compute", where_, Shown(json));
    }
    node.sym = sym->sym;
    has_strides_ |= sym->sym == Sym::kStride;
    node.name = name;
    for (const Json& argument : arguments) {
      const bool is_value = argument.is_object() && argument.contains("v");
      if (is_value) {
        node.arguments.push_back({.kind = Argument::Kind::kValue, .value = Used(argument["v"])});
      } else {
        node.arguments.push_back(Decode(argument, c10::NumberType::get()));
      }
    }
    node.results.push_back({.value = Arises(out[0])});
  }

  void ReadResults(const Json& out, const std::string& full, const c10::FunctionSchema& schema,
                   Node& node) {
    if (!out.is_array() || out.size() != schema.returns().size()) {
      throw UsageError("{}: {} has {} results", where_, full, schema.returns().size());
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const Json& one = out[i];
      if (!one.is_null() &&
          one.is_array() != (schema.returns()[i].type()->kind() == TypeKind::ListType)) {
        throw UsageError("{}: {} stands for {} of {}", where_, Shown(one),
                         schema.returns()[i].type()->repr_str(), full);
      }
      Result result;
      if (one.is_array()) {
        result.is_list = true;
        for (const Json& element : one)
          result.elements.push_back(element.is_null() ? -1 : Arises(element));
      } else if (!one.is_null()) {
        result.value = Arises(one);
      }
      node.results.push_back(std::move(result));
    }
  }

  std::string where_;
  std::vector<bool> known_;
  // Whether a number was read that is a tensor's stride. On META an operation may choose other strides than on the
  // device, so that nothing that comes later is foretold for certain.
  bool has_strides_ = false;
};

}  // namespace

namespace {

void AddValues(const Argument& argument, std::vector<int64_t>& values) {
  if (argument.kind == Argument::Kind::kValue) values.push_back(argument.value);
  for (const Argument& element : argument.elements) AddValues(element, values);
}

}  // namespace

std::vector<int64_t> ValuesOf(const Argument& argument) {
  std::vector<int64_t> values;
  AddValues(argument, values);
  return values;
}

std::vector<int64_t> ValuesOf(const Node& node) {
  std::vector<int64_t> values;
  for (const Argument& argument : node.arguments) AddValues(argument, values);
  return values;
}

std::vector<int64_t> ResultsOf(const Node& node) {
  std::vector<int64_t> values;
  for (const Result& result : node.results) {
    if (result.value >= 0) values.push_back(result.value);
    std::ranges::copy_if(result.elements, std::back_inserter(values),
                         [](int64_t element) { return element >= 0; });
  }
  return values;
}

bool Writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void FillLastUses(Program& program) {
  std::vector<int64_t> last_use(program.values, -1);  // for each value: the last node that uses it
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    program.nodes[i].last_uses.clear();
    for (const int64_t value : ValuesOf(program.nodes[i])) {
      last_use[value] = static_cast<int64_t>(i);
    }
  }
  for (int64_t value = 0; value < program.values; ++value) {
    if (value != program.output && last_use[value] >= 0) {
      program.nodes[last_use[value]].last_uses.push_back(value);
    }
  }
}

IValue ListOf(const TypePtr& element_type, std::vector<IValue> elements) {
  c10::impl::GenericList list(element_type);
  for (IValue& element : elements) list.push_back(std::move(element));
  return list;
}

Program ReadProgram(const Json& graph, const std::string& where, int64_t input_count) {
  Program program{.where = where};
  program.values = Integer(Member(graph, "values", where), where);
  if (program.values < 0 || program.values > kMostValues) {
    throw UsageError("{}: {} values are not 0 to {}", where, program.values, kMostValues);
  }
  const Json& batch = Member(graph, "batch", where);
  if (!batch.is_array() || batch.size() != 2) throw UsageError("{}: its batch is no range", where);
  program.least_batch = Integer(batch[0], where);
  program.most_batch = Integer(batch[1], where);
  if (program.least_batch < 1 || program.most_batch < program.least_batch) {
    throw UsageError("{}: its batch of {} to {} samples is no range", where, program.least_batch,
                     program.most_batch);
  }
  Reader reader(where, program.values);
  const Json& inputs = Member(graph, "inputs", where);
  if (!inputs.is_array() || static_cast<int64_t>(inputs.size()) != input_count) {
    throw UsageError("{}: it does not have {} inputs", where, input_count);
  }
  for (const Json& input : inputs)
    program.inputs.push_back(input.is_null() ? -1 : reader.Arises(input));
  const auto read = [&](const char* kind, std::map<std::string, int64_t>& tensors) {
    for (const auto& [name, id] : Member(graph, kind, where).items())
      tensors[name] = reader.Arises(id);
  };
  read("parameters", program.parameters);
  read("buffers", program.buffers);
  read("constants", program.constants);
  const Json& nodes = Member(graph, "nodes", where);
  if (!nodes.is_array()) throw UsageError("{}: its nodes are no list", where);
  for (const Json& node : nodes) {
    program.nodes.push_back(reader.ReadNode(node));
  }
  program.output = reader.Used(Member(graph, "output", where));
  FillLastUses(program);
  return program;
}

}  // namespace lockstep::exported
