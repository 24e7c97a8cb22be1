// CallArguments: the arguments of a call of one of LibTorch's operations, by the names that its schema gives them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::exported {

class CallArguments {
 public:
  // `values` are in the order of the schema. Both must exist as long as the object.
  CallArguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values)
      : schema_(schema), values_(values) {}

  const c10::FunctionSchema& schema() const { return schema_; }
  const std::vector<c10::IValue>& values() const { return values_; }

  // These functions return nothing, or an empty list, if the operation has no argument of this name, if the argument is
  // None, or if it has another type. A single integer counts as a list of one.
  std::optional<at::Tensor> Tensor(std::string_view name) const;
  std::optional<int64_t> Integer(std::string_view name) const;
  std::optional<double> Number(std::string_view name) const;
  std::optional<std::vector<int64_t>> Integers(std::string_view name) const;
  std::vector<double> Numbers(std::string_view name) const;
  std::optional<at::ScalarType> Dtype(std::string_view name) const;
  std::string Text(std::string_view name) const;
  bool Is(std::string_view name) const;

  // Returns the tensors of a list; an undefined tensor for each element that is None.
  std::vector<at::Tensor> Tensors(std::string_view name) const;

  // Returns all tensors among the arguments, also those in lists.
  std::vector<at::Tensor> AllTensors() const;

  // Returns the first argument, which must be a tensor.
  const at::Tensor& First() const { return values_.at(0).toTensor(); }

 private:
  const c10::IValue* Find(std::string_view name) const;

  const c10::FunctionSchema& schema_;
  const std::vector<c10::IValue>& values_;
};

}  // namespace lockstep::exported
