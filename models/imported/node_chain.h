// NodeChain: walks through a program that is being rewritten. A step goes from a node to the only user of its result,
// or from this user back to the node. Patterns use a NodeChain to describe the chain that they look for.
//
// If a step does not find the node that it asks for, the walk fails, and all further steps fail, too.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

class NodeChain {
 public:
  // Begins at `node`, which passed() does not contain.
  NodeChain(const Rewriter& rewriter, int64_t node) : rewriter_(rewriter), node_(node) {}

  // Back() goes to the node that computes the current node's first argument. On() goes to the node that uses the
  // current node's result. Each of the two fails unless the node that it reaches is the operation `name`.
  NodeChain& Back(std::string_view name);
  NodeChain& On(std::string_view name);

  // With() fails unless argument i of the current node is this constant. WithIntegers() fails unless argument i is a
  // list of these integers.
  NodeChain& With(size_t i, const c10::IValue& value);
  NodeChain& WithIntegers(size_t i, std::initializer_list<int64_t> integers);

  // Fails unless the current node, a transpose, swaps the first two dimensions.
  NodeChain& OfFirstTwo();

  bool is_there() const { return node_ >= 0; }  // whether no step has failed
  int64_t node() const { return node_; }
  const std::vector<Argument>& arguments() const { return rewriter_.At(node_).arguments; }
  const std::vector<int64_t>& passed() const { return passed_; }

 private:
  NodeChain& Go(int64_t to);
  NodeChain& Require(bool holds);

  const Rewriter& rewriter_;
  int64_t node_;
  std::vector<int64_t> passed_;
};

}  // namespace lockstep::exported
