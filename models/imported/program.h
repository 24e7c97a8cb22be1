// Program: what an exported graph (python/FORMAT.md) calls, in order, as it was read and checked.
//
// ReadProgram() makes it of a file's text, exported_graph.cc runs it, and segments.h cuts it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::exported {

// An argument of an operation, as far as it is known before the graph runs.
struct Argument {
  enum class Kind { kConstant, kValue, kDevice, kList };

  Kind kind = Kind::kConstant;
  c10::IValue constant;
  int64_t value = -1;
  bool to_float = false;  // an integer that the schema takes as a float
  std::vector<Argument> elements;
  c10::TypePtr element_type;
};

// One result of a node's operation.
struct Result {
  int64_t value = -1;    // -1: nobody uses it
  bool is_list = false;  // it is a list of tensors, whose elements are the values
  std::vector<int64_t> elements{};
};

enum class Sym {
  kSize,
  kStride,
  kNumel,
  kAdd,
  kSub,
  kMul,
  kFloorDiv,
  kMod,
  kTrueDiv,
  kPow,
  kNeg,
  kMin,
  kMax,
  kCeil,
  kFloor,
  kTrunc,
  kFloat,
  kSqrt,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kNot,
  kIte
};

// An operation of ops, called with its node's arguments. Gives one tensor for each of the node's results.
using FusedOperation =
    std::function<std::vector<at::Tensor>(const std::vector<c10::IValue>& arguments)>;

struct Node {
  std::optional<c10::OperatorHandle> operation;
  FusedOperation fused;  // in the place of `operation` (fuse.h)
  Sym sym = Sym::kAdd;   // of a number

  bool IsNumber() const { return !operation && !fused; }
  std::vector<Argument> arguments;
  std::vector<Result> results;
  std::vector<int64_t> last_uses;  // values that no later node uses
  // Arguments that are the size or the stride of a window and are known only when the graph runs.
  std::vector<size_t> windows;
  bool grad = true;
  bool autocast = true;
  std::string name;  // "aten::conv2d of layer1.0.conv1 (resnet.py:88)"
};

// A value is a number below `values`. It arises once: with the graph's inputs, as a tensor of the module, or as the
// result of a node.
struct Program {
  std::string where;  // for errors: the file and which of its graphs
  int64_t values = 0;
  std::vector<int64_t> inputs;  // -1: not used
  std::map<std::string, int64_t> parameters, buffers, constants;
  std::vector<Node> nodes;
  int64_t output = 0;
  int64_t least_batch = 1, most_batch = 1;  // the numbers of samples that it takes
};

// Reads a graph of `input_count` inputs. It calls only operations of python/lockstep/operations.txt, with arguments
// that have the types of their schemas and arose before. Throws Error (kUsage) that names the place in `where`.
Program ReadProgram(const nlohmann::json& graph, const std::string& where, int64_t input_count);

// The values that a node uses, and those that arise with it.
std::vector<int64_t> ValuesOf(const Argument& argument);
std::vector<int64_t> ValuesOf(const Node& node);
std::vector<int64_t> ResultsOf(const Node& node);

// Whether an operation changes an argument in place.
bool Writes(const c10::Argument& argument);

// Fills the last_uses of all nodes.
void FillLastUses(Program& program);

// Whether sizes or strides of a window are positive. Libraries divide by them, and do not all look whether they are
// zero.
bool MovesWindow(const c10::IValue& value);

// A list as an operation takes it.
c10::IValue ListOf(const c10::TypePtr& element_type, std::vector<c10::IValue> elements);

}  // namespace lockstep::exported
