// Rewriter: a program whose nodes are being replaced by fused operations (fuse.h), with the queries that patterns need.
//
// A pattern finds a chain of nodes, and Put() replaces the chain by one operation. The operation takes the place of the
// chain's last node, because all inputs of the chain are defined by then. Nodes outside the chain may use only those
// results of the chain that the operation returns. Put() leaves a chain as it is if one of these nodes comes before the
// chain's last node. Put() also leaves a chain as it is if another node between the chain's nodes changes a tensor
// other than a buffer in place, because the chain may read that tensor.
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

// Returns the name of the node's operation, such as "aten::relu"; "" for a fused operation or a node that computes a
// number.
std::string_view NameOf(const Node& node);

bool IsValue(const Argument& argument);
bool IsConstant(const Argument& argument);
bool IsConstant(const Argument& argument, const c10::IValue& value);

// Returns the elements of a list of integers; an element is nothing if it is known only when the graph runs. Returns an
// empty list if the argument is not a list.
std::vector<std::optional<int64_t>> IntegersOf(const Argument& argument);

// Returns the argument's value if it is a constant, finite number, which may be a 0-dimensional tensor; otherwise
// nothing.
std::optional<double> NumberOf(const Argument& argument);

// Returns whether the argument is a list of these integers.
bool AreIntegers(const Argument& argument, std::initializer_list<int64_t> integers);

// Returns the number that all elements of the list are equal to; nothing if they differ or there are none.
std::optional<int64_t> SingleOf(const Argument& argument);

// Returns whether the node is a transpose that exchanges these two dimensions, as they are given, in either order.
bool Exchanges(const Node& node, int64_t first, int64_t second);

// Returns whether the node is a sum x + y of two values. For a sum in place, pass the operation "aten::add_".
bool IsSum(const Node& node, std::string_view operation = "aten::add");

// Returns an argument that refers to this value.
Argument ValueArgument(int64_t value);

class Rewriter {
 public:
  explicit Rewriter(Program& program);

  int64_t size() const { return static_cast<int64_t>(program_.nodes.size()); }
  const Node& At(int64_t node) const { return program_.nodes[node]; }
  const Program& program() const { return program_; }

  // Returns whether the node was replaced by a fused operation or left out.
  bool IsGone(int64_t node) const { return gone_.contains(node); }

  // Returns the node that computes a value, if the node is still in the program; -1 if there is none, also for the value
  // -1 of an argument that is no value.
  int64_t MakerOf(int64_t value) const;

  // Returns the nodes that use a value. A node that uses the value twice occurs twice.
  const std::vector<int64_t>& UsersOf(int64_t value) const { return users_[value]; }

  // Returns the node that computes this argument of `user`. Returns -1 if no node computes it, if other nodes also use
  // the result of that node, or if `name` is not empty and that node is a different operation.
  int64_t OwnMakerOf(int64_t user, size_t argument = 0, std::string_view name = {}) const;

  // OnlyUser() returns the only node that uses the result of `node`, if that user runs in the same grad and autocast
  // modes as `node` and itself has one result; -1 if there is no such user. OnlyUserOf() does the same for any value,
  // with the modes of `like`.
  int64_t OnlyUser(int64_t node) const;
  int64_t OnlyUserOf(int64_t value, const Node& like) const;

  // Returns whether `users` are all nodes that use the value, whether all of them run in the same grad and autocast modes,
  // and whether none is gone.
  bool AreUsersOf(int64_t value, const std::vector<int64_t>& users) const;

  // Returns the nodes that use the result of `node` and round it to 16 bits under autocast, directly or after
  // operations that only move values, such as a transpose. Returns no nodes if `node` itself runs without autocast.
  std::vector<int64_t> RoundingUsers(int64_t node) const;

  // Returns whether the value has 16 bits under autocast: whether it is the result of a product, or of moving the values of
  // one.
  bool IsOfProduct(int64_t value) const;

  // Returns whether the value is a parameter, or the result of moving a parameter's values, such as a reshape.
  bool IsParameter(int64_t value) const;

  // IsWritten() returns whether an operation changes the value's memory in place, through this value or through another
  // value of its memory group. IsWrittenAfter() returns whether an operation after `node` does so.
  bool IsWritten(int64_t value) const { return IsWrittenAfter(value, -1); }
  bool IsWrittenAfter(int64_t value, int64_t node) const;

  // Puts `operation` in the place of the chain's last node. `arguments` are its arguments. `results` are the values
  // that it defines, or -1 for a tensor that is not used. The new node gets the modes and the name of `like`, a node of
  // the chain. Returns whether the chain was replaced.
  bool Put(const std::vector<int64_t>& chain, FusedOperation operation,
           const std::vector<Argument>& arguments, const std::vector<int64_t>& results,
           int64_t like);

  // NewValue() adds a value that may share memory with `like`. Replace() makes `in_nodes` use `by` instead of `value`.
  int64_t NewValue(int64_t like);
  void Replace(int64_t value, int64_t by, const std::vector<int64_t>& in_nodes);

  // Returns the nodes after `node` that may read `input` from `node` instead, if `node` also returned it: those that
  // need a result of `node` anyway, products, and fused operations. (Other nodes could be in one kernel with the maker
  // of `input`, and must not wait for `node`.) Returns no nodes if an operation may write to `input` after `node`, or if
  // `input` is not the result of a node (for example, if it is the graph's input).
  std::vector<int64_t> LaterReaders(int64_t input, int64_t node) const;

  // Makes `readers`, which are LaterReaders(input, node), read the result number `result` of the operation that Put()
  // placed at `node`. This result must be `input` itself. The backward of the operation then receives the gradients from
  // those nodes. The result is not used if there are no readers.
  void PassOn(int64_t input, const std::vector<int64_t>& readers, int64_t node, size_t result);

  // Gives the node other arguments.
  void SetArguments(int64_t node, std::vector<Argument> arguments);

  // Removes a node that returns its argument `value` unchanged.
  void LeaveOut(int64_t node, int64_t value);

  // Replaces the program's nodes by the rewritten ones.
  void Finish();

 private:
  // Returns whether the node writes in place to memory of one of `groups`, other than a buffer.
  bool Changes(const Node& node, const std::set<int64_t>& groups) const;
  int64_t BeforeMoves(int64_t value) const;
  bool IsRoundedByAll(int64_t value) const;
  bool IsRoundedBy(int64_t user, int64_t value) const;

  Program& program_;
  std::vector<int64_t> maker_;               // for each value: the node that computes it; -1: none
  std::vector<std::vector<int64_t>> users_;  // for each value: its users, once for each use
  std::set<int64_t> buffers_, parameters_;   // the values of buffers and of parameters
  const int64_t values_;                     // the number of values before any were added
  MemoryGroups groups_;
  std::map<int64_t, int64_t> last_written_;  // for each group: the last node that writes to it
  std::set<int64_t> gone_;                   // nodes that were fused or left out
  std::map<int64_t, Node> fused_;            // operations, by the last node of the replaced chain
};

}  // namespace lockstep::exported
