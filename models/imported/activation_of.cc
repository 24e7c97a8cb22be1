#include "models/imported/activation_of.h"

#include <string_view>

#include "models/imported/rewriter.h"

namespace lockstep::exported {

using ops::Activation;

Activation ActivationOf(const Node& node) {
  std::string_view name = NameOf(node);
  if (name.ends_with('_')) name.remove_suffix(1);
  if (name == "aten::relu") return Activation::kRelu;
  if (name == "aten::silu") return Activation::kSilu;
  if (name == "aten::hardswish") return Activation::kHardswish;
  if (name != "aten::gelu") return Activation::kNone;
  if (IsConstant(node.arguments[1], "none")) return Activation::kGelu;
  return IsConstant(node.arguments[1], "tanh") ? Activation::kGeluTanh : Activation::kNone;
}

}  // namespace lockstep::exported
