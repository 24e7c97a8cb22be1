// CommandOptions: defines the options of a command. This class hides CLI11 from the commands, so that few files include
// CLI11. CLI11 consists of headers only, and a file that includes it takes eleven seconds longer to compile.
//
//   options.Add("RUN", run_dir_, "run folder").Required();
//   options.Add("--last", last_, "collectives to print").Within(1, 4096).ShowDefault();
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep {

class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}

  const Option& Required() const;
  const Option& ShowDefault() const;  // makes the help show the variable's value
  const Option& Within(int64_t least, int64_t most) const;
  const Option& Between(double least, double most) const;
  // Accepts one of `words`, in small letters or capitals, and with or without the signs between its parts.
  const Option& OneOf(const std::vector<std::string>& words) const;
  // Makes an option with a list of values take at least `least` and at most `most` values.
  const Option& Take(int least, int most) const;
  // Makes an option with a list of values take one value each time that it is given. The user repeats the option to
  // give several values.
  const Option& OneEach() const;

 private:
  CLI::Option& option_;
};

class CommandOptions {
 public:
  explicit CommandOptions(CLI::App& app) : app_(app) {}

  // Adds an option, or an argument without a name. `name` is "--name" for an option, and "NAME" for an argument. `what`
  // is the description in the help. `value` holds the default, receives the user's value, and must outlive the parsing.
  Option Add(const std::string& name, std::string& value, const std::string& what);
  Option Add(const std::string& name, std::vector<std::string>& value, const std::string& what);
  Option Add(const std::string& name, int& value, const std::string& what);
  Option Add(const std::string& name, int64_t& value, const std::string& what);
  Option Add(const std::string& name, uint64_t& value, const std::string& what);
  Option Add(const std::string& name, double& value, const std::string& what);
  // Adds a flag, which takes no value. `value` becomes true if the user gives the flag.
  Option Add(const std::string& name, bool& value, const std::string& what);

  // Adds an option whose value is one of `words`. `usual` is the word for the default value, which `value` holds when
  // this function is called.
  template <typename Enum>
  void AddChoice(const std::string& name, Enum& value, const std::string& what,
                 const std::map<std::string, Enum>& words, const std::string& usual) {
    std::vector<std::string> known;
    for (const auto& [word, meaning] : words) known.push_back(word);
    AddWord(
        name, [&value, words](const std::string& word) { value = words.at(word); }, what, known,
        usual);
  }

 private:
  void AddWord(const std::string& name, const std::function<void(const std::string&)>& set,
               const std::string& what, const std::vector<std::string>& known,
               const std::string& usual);

  CLI::App& app_;
};

}  // namespace lockstep
