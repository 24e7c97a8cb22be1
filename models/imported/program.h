// Program: the operations that an exported graph (python/FORMAT.md) calls, in order, after it was read and checked.
//
// ReadProgram() makes a Program from a file's JSON, exported_graph.cc runs it, and segments.h divides it into segments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/imported/contract.h"
#include "models/imported/guarded_call.h"

namespace lockstep::exported {

// An argument of an operation. Its value may be known only when the graph runs.
struct Argument {
  enum class Kind { kConstant, kValue, kDevice, kList };

  Kind kind = Kind::kConstant;
  c10::IValue constant;
  int64_t value = -1;
  bool to_float = false;  // whether an integer is to become a float, as the schema asks
  std::vector<Argument> elements;
  c10::TypePtr element_type;
};

// One result of a node's operation.
struct Result {
  int64_t value = -1;    // -1: no node uses it, or is_list
  bool is_list = false;  // the result is a list of tensors; `elements` holds their values
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

// An operation of ops that gets its node's arguments. The operation returns one tensor for each of the node's results.
using FusedOperation =
    std::function<std::vector<at::Tensor>(const std::vector<c10::IValue>& arguments)>;

struct Node {
  std::optional<c10::OperatorHandle> operation;
  Caller call = nullptr;  // calls `operation` (guarded_call.h)
  FusedOperation fused;   // replaces `operation` (fuse.h)
  Sym sym = Sym::kAdd;    // the operation of a node that computes a number

  bool IsNumber() const { return !operation && !fused; }
  std::vector<Argument> arguments;
  std::vector<Result> results;
  std::vector<int64_t> last_uses;  // values that no later node uses; released after this node
  Parts unforeseen{false, false,
                   false};  // what of the contract is checked in each call (contract.h)
  bool grad = true;
  bool autocast = true;
  std::string name;  // for messages, such as "aten::conv2d of layer1.0.conv1 (resnet.py:88)"
};

// A value is identified by a number below `values`. Each value is defined once: as an input of the graph, as a tensor
// of the module, or as the result of a node.
struct Program {
  std::string where;  // the file and the graph in it, for error messages
  int64_t values = 0;
  std::vector<int64_t> inputs;  // for each input: its value; -1: the graph does not use it
  std::map<std::string, int64_t> parameters, buffers, constants;
  std::set<int64_t> empty_constants;  // the constants of shape [0]
  std::vector<Node> nodes;
  int64_t output = 0;
  int64_t least_batch = 1, most_batch = 1;  // the smallest and the largest batch of the graph
};

// Reads a graph of `input_count` inputs. The graph may call only operations of python/lockstep/operations.txt, with
// arguments that have the types of the operations' schemas and that were defined before. If the graph is not like this,
// throws Error (kUsage) whose text begins with `where` and names the place in the graph.
Program ReadProgram(const nlohmann::json& graph, const std::string& where, int64_t input_count);

// ValuesOf() returns the values that an argument or a node uses. ResultsOf() returns the values that a node defines.
std::vector<int64_t> ValuesOf(const Argument& argument);
std::vector<int64_t> ValuesOf(const Node& node);
std::vector<int64_t> ResultsOf(const Node& node);

// Returns whether an operation changes this argument in place.
bool Writes(const c10::Argument& argument);

// Fills the last_uses of all nodes.
void FillLastUses(Program& program);

// Makes a list of the type that an operation's schema asks for.
c10::IValue ListOf(const c10::TypePtr& element_type, std::vector<c10::IValue> elements);

}  // namespace lockstep::exported
