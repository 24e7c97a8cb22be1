#include "models/imported/rewriter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

namespace lockstep::exported {
namespace {

// Operations that only move or copy values.
constexpr std::array<std::string_view, 14> kMoves = {
    "aten::view",    "aten::reshape",   "aten::permute", "aten::transpose", "aten::contiguous",
    "aten::flatten", "aten::unsqueeze", "aten::squeeze", "aten::alias",     "aten::roll",
    "aten::clone",   "aten::expand",    "aten::slice",   "aten::unflatten"};

// Operations that autocast computes in 16 bits.
constexpr std::array<std::string_view, 5> kProducts = {"aten::linear", "aten::conv2d",
                                                       "aten::matmul", "aten::bmm",
                                                       "aten::scaled_dot_product_attention"};

bool Moves(const Node& node) {
  return node.results.size() == 1 && !node.results[0].is_list &&
         std::ranges::find(kMoves, NameOf(node)) != kMoves.end();
}

// Returns the values that the node changes in place.
std::vector<int64_t> WrittenBy(const Node& node) {
  std::vector<int64_t> written;
  for (size_t i = 0; node.operation && i < node.arguments.size(); ++i) {
    if (!Writes(node.operation->schema().arguments()[i])) continue;
    std::ranges::copy(ValuesOf(node.arguments[i]), std::back_inserter(written));
  }
  return written;
}

// Makes `argument` refer to value `by` wherever it refers to `value`.
void Rename(Argument& argument, int64_t value, int64_t by) {
  if (argument.kind == Argument::Kind::kValue && argument.value == value) argument.value = by;
  for (Argument& element : argument.elements) Rename(element, value, by);
}

}  // namespace

std::string_view NameOf(const Node& node) {
  return node.operation ? std::string_view(node.operation->schema().name()) : std::string_view();
}

bool IsValue(const Argument& argument) { return argument.kind == Argument::Kind::kValue; }

bool IsConstant(const Argument& argument) { return argument.kind == Argument::Kind::kConstant; }

bool IsConstant(const Argument& argument, const c10::IValue& value) {
  return IsConstant(argument) && argument.constant == value;
}

std::vector<std::optional<int64_t>> IntegersOf(const Argument& argument) {
  std::vector<std::optional<int64_t>> integers;
  if (argument.kind == Argument::Kind::kList) {
    for (const Argument& element : argument.elements) {
      const bool is_known = IsConstant(element) && element.constant.isInt();
      integers.push_back(is_known ? std::optional(element.constant.toInt()) : std::nullopt);
    }
  } else if (IsConstant(argument) && argument.constant.isIntList()) {
    for (const int64_t integer : argument.constant.toIntVector()) integers.emplace_back(integer);
  }
  return integers;
}

std::optional<double> NumberOf(const Argument& argument) {
  if (!IsConstant(argument)) return std::nullopt;
  const c10::IValue& constant = argument.constant;
  double number = NAN;
  if (constant.isDouble() || constant.isInt()) number = constant.toScalar().to<double>();
  if (constant.isTensor() && constant.toTensor().defined() && constant.toTensor().dim() == 0) {
    number = constant.toTensor().item<double>();
  }
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

bool AreIntegers(const Argument& argument, std::initializer_list<int64_t> integers) {
  return std::ranges::equal(IntegersOf(argument), integers);
}

std::optional<int64_t> SingleOf(const Argument& argument) {
  const auto numbers = IntegersOf(argument);
  const bool is_single = !numbers.empty() && std::ranges::all_of(numbers, [&](const auto& number) {
    return number == numbers[0];
  });
  return is_single ? numbers[0] : std::nullopt;
}

bool Exchanges(const Node& node, int64_t first, int64_t second) {
  const std::vector<Argument>& arguments = node.arguments;
  return NameOf(node) == "aten::transpose" &&
         ((IsConstant(arguments[1], first) && IsConstant(arguments[2], second)) ||
          (IsConstant(arguments[1], second) && IsConstant(arguments[2], first)));
}

bool IsSum(const Node& node, std::string_view operation) {
  return NameOf(node) == operation && node.operation->schema().overload_name() == "Tensor" &&
         IsValue(node.arguments[0]) && IsValue(node.arguments[1]) &&
         IsConstant(node.arguments[2], 1);
}

Argument ValueArgument(int64_t value) { return {.kind = Argument::Kind::kValue, .value = value}; }

Rewriter::Rewriter(Program& program)
    : program_(program),
      maker_(program.values, -1),
      users_(program.values),
      values_(program.values),
      groups_(program) {
  for (int64_t i = 0; i < size(); ++i) {
    for (const int64_t value : ValuesOf(At(i))) users_[value].push_back(i);
    for (const int64_t value : ResultsOf(At(i))) maker_[value] = i;
    for (const int64_t value : WrittenBy(At(i))) last_written_[groups_.Of(value)] = i;
  }
  for (const auto& [name, value] : program.buffers) buffers_.insert(value);
  for (const auto& [name, value] : program.parameters) parameters_.insert(value);
}

int64_t Rewriter::MakerOf(int64_t value) const {
  const int64_t maker = value < 0 ? -1 : maker_[value];
  return maker >= 0 && !IsGone(maker) ? maker : -1;
}

int64_t Rewriter::OwnMakerOf(int64_t user, size_t argument, std::string_view name) const {
  const Argument& given = At(user).arguments[argument];
  const int64_t maker = IsValue(given) ? MakerOf(given.value) : -1;
  if (maker < 0 || OnlyUser(maker) != user) return -1;
  return name.empty() || NameOf(At(maker)) == name ? maker : -1;
}

int64_t Rewriter::OnlyUser(int64_t node) const {
  return OnlyUserOf(At(node).results[0].value, At(node));
}

bool Rewriter::AreUsersOf(int64_t value, const std::vector<int64_t>& users) const {
  if (value < 0 || value == program_.output) return false;
  const std::set<int64_t> expected(users.begin(), users.end());
  const std::set<int64_t> found(users_[value].begin(), users_[value].end());
  const Node& like = At(users.front());
  return expected == found && std::ranges::all_of(users, [&](int64_t user) {
           return At(user).operation && At(user).grad == like.grad &&
                  At(user).autocast == like.autocast && !IsGone(user);
         });
}

int64_t Rewriter::OnlyUserOf(int64_t value, const Node& like) const {
  if (value < 0 || value == program_.output || users_[value].size() != 1) return -1;
  const int64_t user = users_[value][0];
  const bool is_alike = At(user).operation && At(user).grad == like.grad &&
                        At(user).autocast == like.autocast && !IsGone(user) &&
                        At(user).results.size() == 1 &&
                        (At(user).results[0].is_list || At(user).results[0].value >= 0);
  return is_alike ? user : -1;
}

bool Rewriter::IsRoundedBy(int64_t user, int64_t value) const {
  const Node& node = At(user);
  if (IsGone(user)) return false;
  const std::string_view name = NameOf(node);
  if (name == "aten::linear" || name == "aten::conv2d") {
    return node.autocast && IsValue(node.arguments[0]) && node.arguments[0].value == value &&
           !(IsValue(node.arguments[1]) && node.arguments[1].value == value);
  }
  if (std::ranges::find(kProducts, name) != kProducts.end()) return node.autocast;
  return Moves(node) && IsRoundedByAll(node.results[0].value);
}

std::vector<int64_t> Rewriter::RoundingUsers(int64_t node) const {
  const int64_t value = At(node).results[0].value;
  std::vector<int64_t> rounding;
  if (!At(node).autocast || value == program_.output) return rounding;
  std::ranges::copy_if(users_[value], std::back_inserter(rounding),
                       [&](int64_t user) { return IsRoundedBy(user, value); });
  return rounding;
}

bool Rewriter::IsRoundedByAll(int64_t value) const {
  return value >= 0 && value != program_.output && !users_[value].empty() &&
         std::ranges::all_of(users_[value], [&](int64_t user) { return IsRoundedBy(user, value); });
}

int64_t Rewriter::BeforeMoves(int64_t value) const {
  for (int64_t maker = MakerOf(value);
       maker >= 0 && Moves(At(maker)) && IsValue(At(maker).arguments[0]); maker = MakerOf(value)) {
    value = At(maker).arguments[0].value;
  }
  return value;
}

bool Rewriter::IsOfProduct(int64_t value) const {
  const int64_t maker = MakerOf(BeforeMoves(value));
  return maker >= 0 && At(maker).autocast &&
         std::ranges::find(kProducts, NameOf(At(maker))) != kProducts.end();
}

bool Rewriter::IsParameter(int64_t value) const { return parameters_.contains(BeforeMoves(value)); }

bool Rewriter::IsWrittenAfter(int64_t value, int64_t node) const {
  const auto last = last_written_.find(groups_.Of(value));
  return last != last_written_.end() && last->second > node;
}

bool Rewriter::Put(const std::vector<int64_t>& chain, FusedOperation operation,
                   const std::vector<Argument>& arguments, const std::vector<int64_t>& results,
                   int64_t like) {
  // The memory that the chain has read or written before the node i. The fused operation reads it after that node.
  std::set<int64_t> touched;
  for (int64_t i = chain.front(); i < chain.back(); ++i) {
    if (std::ranges::find(chain, i) != chain.end()) {
      for (const int64_t value : ValuesOf(At(i))) touched.insert(groups_.Of(value));
      for (const int64_t value : ResultsOf(At(i))) touched.insert(groups_.Of(value));
    } else if (Changes(At(i), touched)) {
      return false;
    }
  }
  Node node;
  for (const int64_t result : results) {
    if (result < 0) {
      node.results.push_back({});
      continue;
    }
    bool is_used = result == program_.output;
    for (const int64_t user : users_[result]) {
      if (std::ranges::find(chain, user) != chain.end()) continue;
      if (user < chain.back()) return false;  // `user` would run before the fused operation
      is_used = true;
    }
    node.results.push_back({.value = is_used ? result : -1});
  }
  node.fused = std::move(operation);
  node.arguments = arguments;
  node.grad = At(like).grad;
  node.autocast = At(like).autocast;
  node.name = At(like).name;
  gone_.insert(chain.begin(), chain.end());
  fused_[chain.back()] = std::move(node);
  return true;
}

int64_t Rewriter::NewValue(int64_t like) {
  groups_.Add(like);
  maker_.push_back(-1);
  users_.emplace_back();
  return program_.values++;
}

void Rewriter::Replace(int64_t value, int64_t by, const std::vector<int64_t>& in_nodes) {
  for (const int64_t i : in_nodes) {
    const auto fused = fused_.find(i);
    Node& node = fused != fused_.end() ? fused->second : program_.nodes[i];
    for (Argument& argument : node.arguments) Rename(argument, value, by);
    users_[by].push_back(i);
    std::erase(users_[value], i);
  }
}

std::vector<int64_t> Rewriter::LaterReaders(int64_t input, int64_t node) const {
  const bool arises = input >= values_ || maker_[input] >= 0;
  std::vector<int64_t> readers;
  if (!arises || IsWrittenAfter(input, node)) return readers;
  std::set<int64_t> dependent;  // the values that need a result of `node`
  const auto add_results = [&](const Node& of) {
    for (const int64_t value : ResultsOf(of)) dependent.insert(value);
  };
  add_results(At(node));
  for (int64_t i = node + 1; i < size(); ++i) {
    const auto fused = fused_.find(i);
    const Node& later = fused != fused_.end() ? fused->second : At(i);
    const std::vector<int64_t> read = ValuesOf(later);
    const bool depends =
        std::ranges::any_of(read, [&](int64_t value) { return dependent.contains(value); });
    if (depends) {
      add_results(At(i));
      add_results(later);
    }
    if (std::ranges::find(read, input) == read.end()) continue;
    const bool is_fused = fused != fused_.end();
    const bool is_product = std::ranges::find(kProducts, NameOf(later)) != kProducts.end();
    if (is_fused || (!IsGone(i) && (depends || is_product))) readers.push_back(i);
  }
  return readers;
}

void Rewriter::PassOn(int64_t input, const std::vector<int64_t>& readers, int64_t node,
                      size_t result) {
  if (readers.empty()) return;
  const int64_t passed = NewValue(input);
  Replace(input, passed, readers);
  fused_.at(node).results[result].value = passed;
}

void Rewriter::SetArguments(int64_t node, std::vector<Argument> arguments) {
  for (const int64_t value : ValuesOf(At(node))) std::erase(users_[value], node);
  program_.nodes[node].arguments = std::move(arguments);
  for (const int64_t value : ValuesOf(At(node))) {
    users_[value].insert(std::ranges::upper_bound(users_[value], node), node);
  }
}

void Rewriter::LeaveOut(int64_t node, int64_t value) {
  const int64_t result = At(node).results[0].value;
  std::erase(users_[value], node);
  Replace(result, value, std::vector<int64_t>(users_[result]));
  gone_.insert(node);
}

void Rewriter::Finish() {
  std::vector<Node> nodes;
  for (int64_t i = 0; i < size(); ++i) {
    if (const auto fused = fused_.find(i); fused != fused_.end()) {
      nodes.push_back(std::move(fused->second));
    } else if (!IsGone(i)) {
      nodes.push_back(std::move(program_.nodes[i]));
    }
  }
  program_.nodes = std::move(nodes);
  FillLastUses(program_);
}

bool Rewriter::Changes(const Node& node, const std::set<int64_t>& groups) const {
  return std::ranges::any_of(WrittenBy(node), [&](int64_t value) {
    return !buffers_.contains(value) && groups.contains(groups_.Of(value));
  });
}

}  // namespace lockstep::exported
