// Rewriter: a program whose nodes are being replaced by fused operations (fuse.h), and what the patterns ask of it.
//
// A pattern finds a chain of nodes, and Put() replaces it by one operation in the place of the chain's last node,
// because all inputs of the chain have arisen by then. Nobody may use values that arise within the chain, other than
// the results that the operation gives. A chain is left as it is if an operation between changes a tensor in place,
// which the chain may read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "models/imported/memory_groups.h"
#include "models/imported/program.h"

namespace lockstep::exported {

// The name of the node's operation, such as "aten::relu"; "" for a fused operation or a number.
std::string_view NameOf(const Node& node);

bool IsValue(const Argument& argument);
bool IsConstant(const Argument& argument);
bool IsConstant(const Argument& argument, const c10::IValue& value);

// The list's elements, each an integer or, where it is known only when the graph runs, nothing. No list: none.
std::vector<std::optional<int64_t>> IntegersOf(const Argument& argument);

// An argument that is a finite number and no value; where the operation takes a tensor, it is one of no dimension.
std::optional<double> NumberOf(const Argument& argument);

// Whether they are these integers.
bool AreIntegers(const Argument& argument, std::initializer_list<int64_t> integers);

// The number that a list has for all dimensions; nothing if it has several, or none.
std::optional<int64_t> SingleOf(const Argument& argument);

// A sum x + y of two values; of the operation "aten::add_" in place.
bool IsSum(const Node& node, std::string_view operation = "aten::add");

// An argument that is this value.
Argument ValueArgument(int64_t value);

class Rewriter {
 public:
  explicit Rewriter(Program& program);

  int64_t size() const { return static_cast<int64_t>(program_.nodes.size()); }
  const Node& At(int64_t node) const { return program_.nodes[node]; }
  const Program& program() const { return program_; }

  // Whether a fused operation has taken the node's place.
  bool IsGone(int64_t node) const { return gone_.contains(node); }

  // The node that a value arises with, if it is still there; -1: none.
  int64_t MakerOf(int64_t value) const;

  // The nodes that use a value, one for each use.
  const std::vector<int64_t>& UsersOf(int64_t value) const { return users_[value]; }

  // The node that gives this argument of `user`, if nobody else uses its result and it is the operation `name`, if one
  // is named; -1: there is none.
  int64_t OwnMakerOf(int64_t user, size_t argument = 0, std::string_view name = {}) const;

  // OnlyUser() returns the only node that uses the result of `node`, if it has the same modes and one result itself;
  // -1: there are several, or none. OnlyUserOf() does the same for a value, whatever node makes it.
  int64_t OnlyUser(int64_t node) const;
  int64_t OnlyUserOf(int64_t value, const Node& like) const;

  // The users of a node's result that round it to 16 bits under autocast, be it after it has been moved about. None if
  // the node itself runs without autocast.
  std::vector<int64_t> RoundingUsers(int64_t node) const;

  // Whether the value is a parameter, or one that was only moved about.
  bool IsParameter(int64_t value) const;

  // Whether an operation changes the value's memory in place, under this name or another; after this node.
  bool IsWritten(int64_t value) const { return IsWrittenAfter(value, -1); }
  bool IsWrittenAfter(int64_t value, int64_t node) const;

  // Puts `operation` where the chain's last node stood. `arguments` are its arguments, `results` the values that arise,
  // or -1; a tensor that nobody uses is dropped. `like`, of the chain, gives modes and name. Returns whether it could.
  bool Put(const std::vector<int64_t>& chain, FusedOperation operation,
           const std::vector<Argument>& arguments, const std::vector<int64_t>& results,
           int64_t like);

  // A new value, which may share memory with `like`; and what these nodes use in the place of another.
  int64_t NewValue(int64_t like);
  void Replace(int64_t value, int64_t by, const std::vector<int64_t>& in_nodes);

  // For an operation at `node` that passes its input on, so that gradients meet in its backward: a new value, which
  // those who read the input later now read. -1: there are none, or the input may change in between, or it is no result
  // of a node, such as the graph's input.
  int64_t PassOn(int64_t input, int64_t node);

  // Leaves a node out that returns its argument `value`.
  void LeaveOut(int64_t node, int64_t value);

  // Gives the program its new nodes.
  void Finish();

 private:
  bool ChangesATensor(const Node& node) const;
  bool IsRoundedByAll(int64_t value) const;
  bool IsRoundedBy(int64_t user, int64_t value) const;

  Program& program_;
  std::vector<int64_t> maker_;               // by value; -1: none
  std::vector<std::vector<int64_t>> users_;  // by value: nodes, one for each use
  std::set<int64_t> buffers_, parameters_;   // values
  const int64_t values_;                     // that the program had
  MemoryGroups groups_;
  std::map<int64_t, int64_t> last_written_;  // by group: the last node that writes to it
  std::set<int64_t> gone_;                   // nodes that are part of a fused one, or left out
  std::map<int64_t, Node> fused_;            // by the node in whose place it is
};

}  // namespace lockstep::exported
