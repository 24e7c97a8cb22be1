#include "models/imported/node_chain.h"

namespace lockstep::exported {

NodeChain& NodeChain::Back(std::string_view name) {
  return Go(is_there() ? rewriter_.OwnMakerOf(node_, 0, name) : -1);
}

NodeChain& NodeChain::On(std::string_view name) {
  const int64_t user = is_there() ? rewriter_.OnlyUser(node_) : -1;
  return Go(user >= 0 && NameOf(rewriter_.At(user)) == name ? user : -1);
}

NodeChain& NodeChain::With(size_t i, const c10::IValue& value) {
  return Require(is_there() && IsConstant(arguments()[i], value));
}

NodeChain& NodeChain::WithIntegers(size_t i, std::initializer_list<int64_t> integers) {
  return Require(is_there() && AreIntegers(arguments()[i], integers));
}

NodeChain& NodeChain::OfFirstTwo() {
  const auto swaps = [&](int64_t a, int64_t b) {
    return IsConstant(arguments()[1], a) && IsConstant(arguments()[2], b);
  };
  return Require(is_there() && (swaps(0, 1) || swaps(1, 0)));
}

NodeChain& NodeChain::Go(int64_t to) {
  node_ = to;
  if (is_there()) passed_.push_back(to);
  return *this;
}

NodeChain& NodeChain::Require(bool holds) {
  if (!holds) node_ = -1;
  return *this;
}

}  // namespace lockstep::exported
