// NodeChain: a walk from node to node of a program that is being rewritten, in which each node is the only one that
// uses what the one before gives. Patterns say with it what they look for.
//
// A step that does not find what it names fails, and so do all that follow it.
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
  // Begins at a node, which is not one of those that were passed.
  NodeChain(const Rewriter& rewriter, int64_t node) : rewriter_(rewriter), node_(node) {}

  // Goes to the node that gives the current one's first argument, or to the one that uses its result, if it is the
  // operation `name`.
  NodeChain& Back(std::string_view name);
  NodeChain& On(std::string_view name);

  // Asks whether the current node's argument i is this constant, or whether it has these integers.
  NodeChain& With(size_t i, const c10::IValue& value);
  NodeChain& WithIntegers(size_t i, std::initializer_list<int64_t> integers);

  // Asks whether the current node, a transpose, is one of the first two dimensions.
  NodeChain& OfFirstTwo();

  bool is_there() const { return node_ >= 0; }  // it has not failed
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
