#include "models/imported/memory_groups.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

namespace lockstep::exported {
namespace {

// Returns whether the operation may return an argument itself although its schema does not say so.
bool MayReturnAnyArgument(const c10::FunctionSchema& schema) {
  constexpr std::array<std::string_view, 17> kUndeclared = {"aten::dropout",
                                                            "aten::feature_dropout",
                                                            "aten::alpha_dropout",
                                                            "aten::feature_alpha_dropout",
                                                            "aten::atleast_1d",
                                                            "aten::atleast_2d",
                                                            "aten::atleast_3d",
                                                            "aten::meshgrid",
                                                            "aten::broadcast_tensors",
                                                            "aten::type_as",
                                                            "aten::conj_physical",
                                                            "aten::sum_to_size",
                                                            "aten::einsum",
                                                            "aten::unsafe_split",
                                                            "aten::unsafe_split_with_sizes",
                                                            "aten::unsafe_chunk",
                                                            "aten::chain_matmul"};
  return std::ranges::find(kUndeclared, schema.name()) != kUndeclared.end();
}

// Returns whether the results may share memory with this argument.
bool MayBeReturned(const c10::FunctionSchema& schema, const c10::Argument& argument) {
  const bool is_declared = argument.alias_info() != nullptr &&
                           std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
                             return result.alias_info() != nullptr;
                           });
  return is_declared || MayReturnAnyArgument(schema);
}

}  // namespace

MemoryGroups::MemoryGroups(const Program& program)
    : parent_(program.values), size_(program.values, 1) {
  std::iota(parent_.begin(), parent_.end(), 0);
  for (const Node& node : program.nodes) {
    if (!node.operation) continue;
    const c10::FunctionSchema& schema = node.operation->schema();
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      if (!MayBeReturned(schema, schema.arguments()[i])) continue;
      for (const int64_t value : ValuesOf(node.arguments[i])) {
        for (const int64_t result : ResultsOf(node)) Join(value, result);
      }
    }
  }
}

int64_t MemoryGroups::Of(int64_t value) const {
  while (parent_[value] != value) value = parent_[value];
  return value;
}

void MemoryGroups::Add(int64_t like) {
  const int64_t group = Of(like);
  parent_.push_back(group);
  size_.push_back(1);
  ++size_[group];
}

// Merges two groups: the group with fewer values is put into the other.
void MemoryGroups::Join(int64_t a, int64_t b) {
  a = Of(a), b = Of(b);
  if (a == b) return;
  if (size_[a] > size_[b]) std::swap(a, b);
  parent_[a] = b;
  size_[b] += size_[a];
}

}  // namespace lockstep::exported
