#include "models/imported/call_arguments.h"

namespace lockstep::exported {
namespace {

using c10::IValue;

void AddTensors(const IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor() && value.toTensor().defined()) tensors.push_back(value.toTensor());
  if (!value.isList()) return;
  for (const IValue& element : value.toListRef()) AddTensors(element, tensors);
}

}  // namespace

const IValue* CallArguments::Find(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    if (schema_.arguments()[i].name() == name) return &values_[i];
  }
  return nullptr;
}

std::optional<at::Tensor> CallArguments::Tensor(std::string_view name) const {
  const IValue* value = Find(name);
  if (value == nullptr || !value->isTensor() || !value->toTensor().defined()) return std::nullopt;
  return value->toTensor();
}

std::optional<int64_t> CallArguments::Integer(std::string_view name) const {
  const IValue* value = Find(name);
  if (value == nullptr || !value->isInt()) return std::nullopt;
  return value->toInt();
}

std::optional<double> CallArguments::Number(std::string_view name) const {
  const IValue* value = Find(name);
  if (value != nullptr && value->isInt()) return static_cast<double>(value->toInt());
  if (value == nullptr || !value->isDouble()) return std::nullopt;
  return value->toDouble();
}

std::optional<std::vector<int64_t>> CallArguments::Integers(std::string_view name) const {
  const IValue* value = Find(name);
  if (value != nullptr && value->isInt()) return std::vector<int64_t>{value->toInt()};
  if (value == nullptr || !value->isIntList()) return std::nullopt;
  return value->toIntVector();
}

std::vector<double> CallArguments::Numbers(std::string_view name) const {
  const IValue* value = Find(name);
  if (value != nullptr && value->isDouble()) return {value->toDouble()};
  return value != nullptr && value->isDoubleList() ? value->toDoubleVector()
                                                   : std::vector<double>();
}

std::optional<at::ScalarType> CallArguments::Dtype(std::string_view name) const {
  const std::optional<int64_t> number = Integer(name);
  return number ? std::optional(static_cast<at::ScalarType>(*number)) : std::nullopt;
}

std::string CallArguments::Text(std::string_view name) const {
  const IValue* value = Find(name);
  return value != nullptr && value->isString() ? value->toStringRef() : std::string();
}

bool CallArguments::Is(std::string_view name) const {
  const IValue* value = Find(name);
  return value != nullptr && value->isBool() && value->toBool();
}

std::vector<at::Tensor> CallArguments::Tensors(std::string_view name) const {
  const IValue* value = Find(name);
  std::vector<at::Tensor> tensors;
  if (value == nullptr || !value->isList()) return tensors;
  for (const IValue& element : value->toListRef()) {
    tensors.push_back(element.isTensor() ? element.toTensor() : at::Tensor());
  }
  return tensors;
}

std::vector<at::Tensor> CallArguments::AllTensors() const {
  std::vector<at::Tensor> tensors;
  for (const IValue& value : values_) AddTensors(value, tensors);
  return tensors;
}

}  // namespace lockstep::exported
