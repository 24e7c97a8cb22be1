#include "launch/cli/command/command_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "base/small_letters.h"

namespace lockstep {
namespace {

// Returns the check that a value is one of `words`. Capital letters, and the signs between the parts of a word, do not
// matter: MultiLabel and multi-label are multi_label. The option gets the word as `words` has it.
CLI::IsMember Choice(const std::vector<std::string>& words) {
  return CLI::IsMember(words, [](std::string word) {
    std::erase_if(word, [](char c) { return c == '_' || c == '-' || c == ' '; });
    return InSmallLetters(word);
  });
}

// Returns the check that a value is a number from `least` to `most`. CLI::Range has other words in each of its versions.
template <typename T>
CLI::Validator InRange(T least, T most) {
  const auto problem = [least, most](const std::string& word) -> std::string {
    T value{};
    if (CLI::detail::lexical_cast(word, value) && value >= least && value <= most) return {};
    return fmt::format("Value {} not in range {} to {}", word, least, most);
  };
  return {problem, fmt::format("{} in [{} - {}]", CLI::detail::type_name<T>(), least, most)};
}

}  // namespace

const Option& Option::Required() const {
  option_.required();
  return *this;
}

const Option& Option::ShowDefault() const {
  option_.capture_default_str();
  return *this;
}

const Option& Option::Within(int64_t least, int64_t most) const {
  option_.check(InRange(least, most));
  return *this;
}

const Option& Option::Between(double least, double most) const {
  option_.check(InRange(least, most));
  return *this;
}

const Option& Option::OneOf(const std::vector<std::string>& words) const {
  option_.transform(Choice(words));
  return *this;
}

const Option& Option::Take(int least, int most) const {
  option_.expected(least, most);
  return *this;
}

const Option& Option::OneEach() const {
  option_.allow_extra_args(false)->take_all();
  return *this;
}

Option CommandOptions::Add(const std::string& name, std::string& value, const std::string& what) {
  return Option(*app_.add_option(name, value, what));
}

Option CommandOptions::Add(const std::string& name, std::vector<std::string>& value,
                           const std::string& what) {
  return Option(*app_.add_option(name, value, what));
}

Option CommandOptions::Add(const std::string& name, int& value, const std::string& what) {
  return Option(*app_.add_option(name, value, what));
}

Option CommandOptions::Add(const std::string& name, int64_t& value, const std::string& what) {
  return Option(*app_.add_option(name, value, what));
}

Option CommandOptions::Add(const std::string& name, uint64_t& value, const std::string& what) {
  return Option(*app_.add_option(name, value, what));
}

Option CommandOptions::Add(const std::string& name, double& value, const std::string& what) {
  return Option(*app_.add_option(name, value, what));
}

Option CommandOptions::Add(const std::string& name, bool& value, const std::string& what) {
  return Option(*app_.add_flag(name, value, what));
}

void CommandOptions::AddWord(const std::string& name,
                             const std::function<void(const std::string&)>& set,
                             const std::string& what, const std::vector<std::string>& known,
                             const std::string& usual) {
  app_.add_option_function<std::string>(name, set, what)
      ->transform(Choice(known))
      ->default_str(usual);
}

}  // namespace lockstep
