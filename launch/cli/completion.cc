// lockstep completion: prints a script with which a shell completes commands, options and their values. The script is
// generated from the CLI11 objects of this program's command line, so it has exactly this program's commands and
// options.
//
// How: each script collects the words before the cursor, but leaves out options, and the values of the options that may
// stand before the command. The first one or two of the collected words are the command. The script then offers the
// first of these lists that applies: the values of the option before the cursor, if that option has a list of values;
// the command's options, if the word at the cursor begins with `-`; the command's subcommands and the allowed values of
// its argument, if there are any; files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "base/say.h"
#include "launch/cli/command/commands.h"

namespace lockstep {
namespace {

struct KnownOption {
  std::vector<std::string> names;  // such as "-n" and "--ranks"
  std::string what;
  std::vector<std::string> values;  // the allowed values; empty: any value is allowed
  bool takes_value = false;
};

// The words that can follow the words of one command.
struct Place {
  std::string words;                                          // "" (no command) or "bench step"
  std::vector<std::pair<std::string, std::string>> commands;  // name and help
  std::vector<KnownOption> options;
  std::vector<std::string> values;  // the allowed values of the command's argument
};

// Returns the allowed values of an option. CLI11 has them in the option's type name, for example "TEXT:{cpu,cuda}".
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

std::vector<KnownOption> OptionsOf(const CLI::App& app) {
  std::vector<KnownOption> options;
  for (const CLI::Option* option : app.get_options()) {
    KnownOption known{.what = option->get_description(),
                      .values = ValuesOf(*option),
                      .takes_value = option->get_items_expected_max() > 0};
    for (const std::string& name : option->get_snames()) known.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) known.names.push_back("--" + name);
    if (!known.names.empty()) options.push_back(known);
  }
  return options;
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

void AddPlaces(const CLI::App& root, const CLI::App& app, const std::string& words,
               std::vector<Place>& places) {
  Place place{.words = words, .options = OptionsOf(app)};
  if (&app != &root) {
    for (const KnownOption& option : OptionsOf(root)) {
      if (option.names.back() != "--help") place.options.push_back(option);
    }
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) place.values = ValuesOf(*option);
  }
  for (const CLI::App* command : CommandsOf(words == "help" ? root : app)) {
    place.commands.emplace_back(command->get_name(), command->get_description());
  }
  places.push_back(place);
  for (const CLI::App* command : CommandsOf(app)) {
    AddPlaces(root, *command,
              words.empty() ? command->get_name() : words + " " + command->get_name(), places);
  }
}

std::string InQuotes(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) {
    text.replace(at, 1, "'\\''");
  }
  return "'" + text + "'";
}

// Quotes `text` for fish, in which a quote and a backslash need a backslash before them.
std::string InFishQuotes(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

// Returns the names of the options that may stand before a command and take the next word as their value, joined by
// `between`: "-n | --ranks | --hosts".
std::string WithValues(const Place& root, const char* between) {
  std::vector<std::string> names;
  for (const KnownOption& option : root.options) {
    if (option.takes_value) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("{}", fmt::join(names, between));
}

// Returns shell patterns. They match the command words before the cursor if these words belong to `place`. If `place`
// is a command of one word without subcommands, there is a second pattern, which allows arguments after the command.
std::vector<std::string> PatternsOf(const Place& place) {
  std::vector<std::string> patterns{InQuotes(place.words)};
  const bool is_last = place.commands.empty() && place.words.find(' ') == std::string::npos;
  if (is_last) patterns.push_back(InQuotes(place.words + " ") + "*");
  return patterns;
}

// Returns a `case` statement for bash and zsh that sets `values` to the allowed values of the option before the cursor.
// `previous` is the shell expression for that option. Returns an empty string if no option has a list of values.
std::string CasesOfValues(const Place& place, const char* previous) {
  std::string cases;
  for (const KnownOption& option : place.options) {
    if (option.values.empty()) continue;
    cases += fmt::format("        {}) values=({}) ;;\n", fmt::join(option.names, " | "),
                         fmt::join(option.values, " "));
  }
  return cases.empty() ? "" : fmt::format("      case {} in\n{}      esac\n", previous, cases);
}

std::string BashScript(const std::string& program, const std::string& function,
                       const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    std::vector<std::string> commands = place.values;
    for (const auto& [name, what] : place.commands) commands.push_back(name);
    std::vector<std::string> options;
    for (const KnownOption& option : place.options) {
      options.insert(options.end(), option.names.begin(), option.names.end());
    }
    cases += fmt::format("    {})\n      commands=({})\n      options=({})\n{}      ;;\n",
                         fmt::join(PatternsOf(place), " | "), fmt::join(commands, " "),
                         fmt::join(options, " "), CasesOfValues(place, "$previous"));
  }
  return fmt::format(
      R"(# Completes {0} in bash: source this file, or put it into ~/.local/share/bash-completion/completions/{0}.
{1}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local words=() commands=() options=() values=() i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
      {2}) ((++i)) ;;
      -*) ;;
      *) words+=("${{COMP_WORDS[i]}}") ;;
    esac
  done
  local IFS=' '
  case "${{words[*]:0:2}}" in
{3}  esac
  local offered=("${{commands[@]}}")
  if ((${{#values[@]}})); then
    offered=("${{values[@]}}")
  elif [[ $current == -* ]]; then
    offered=("${{options[@]}}")
  fi
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "${{offered[*]}}" -- "$current"))
}}
complete -o bashdefault -o default -F {1} {0}
)",
      program, function, WithValues(places.front(), " | "), cases);
}

// Returns "name:help" in quotes, the form in which zsh's _describe takes a word and its description.
std::string Described(const std::string& name, const std::string& what) {
  return InQuotes(fmt::format("{}:{}", name, what));
}

std::string ZshScript(const std::string& program, const std::string& function,
                      const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    std::vector<std::string> commands = place.values;
    for (const auto& [name, what] : place.commands) commands.push_back(Described(name, what));
    std::vector<std::string> options;
    for (const KnownOption& option : place.options) {
      for (const std::string& name : option.names) options.push_back(Described(name, option.what));
    }
    cases += fmt::format("    {})\n      commands=({})\n      options=({})\n{}      ;;\n",
                         fmt::join(PatternsOf(place), " | "), fmt::join(commands, " "),
                         fmt::join(options, " "), CasesOfValues(place, "${words[CURRENT - 1]}"));
  }
  return fmt::format(R"(#compdef {0}
# Completes {0} in zsh: source this file behind compinit, or put it into a folder of $fpath as _{0}.
{1}() {{
  local -a given commands options values
  local i
  for ((i = 2; i < CURRENT; ++i)); do
    case ${{words[i]}} in
      {2}) ((++i)) ;;
      -*) ;;
      *) given+=("${{words[i]}}") ;;
    esac
  done
  case "${{given[1,2]}}" in
{3}  esac
  if (($#values)); then
    compadd -- $values
  elif [[ ${{words[CURRENT]}} == -* ]]; then
    _describe -o option options
  elif (($#commands)); then
    _describe command commands
  else
    _files
  fi
}}
if [[ ${{funcstack[1]}} == _{0} ]]; then
  {1} "$@"
else
  compdef {1} {0}
fi
)",
                     program, function, WithValues(places.front(), " | "), cases);
}

std::string FishScript(const std::string& program, const std::string& function,
                       const std::vector<Place>& places) {
  std::string lines;
  for (const Place& place : places) {
    std::vector<std::string> patterns{InFishQuotes(place.words)};
    if (PatternsOf(place).size() > 1) patterns.push_back(InFishQuotes(place.words + " *"));
    const std::string begin =
        fmt::format("complete -c {} -n {}", program,
                    InFishQuotes(fmt::format("{}_is {}", function, fmt::join(patterns, " "))));
    for (const std::string& value : place.values)
      lines += fmt::format("{} -f -a {}\n", begin, value);
    for (const auto& [name, what] : place.commands) {
      lines += fmt::format("{} -f -a {} -d {}\n", begin, name, InFishQuotes(what));
    }
    for (const KnownOption& option : place.options) {
      std::string line = begin;
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.values.empty()) {
        line += fmt::format(" -x -a '{}'", fmt::join(option.values, " "));
      } else if (option.takes_value) {
        line += " -r";
      }
      lines += fmt::format("{} -d {}\n", line, InFishQuotes(option.what));
    }
  }
  return fmt::format(
      R"(# Completes {0} in fish: put this file into ~/.config/fish/completions/{0}.fish.
function {1}_is
  set -l given
  set -l is_value no
  for word in (commandline -opc)[2..-1]
    if test $is_value = yes
      set is_value no
      continue
    end
    switch $word
      case {2}
        set is_value yes
      case '-*'
      case '*'
        set -a given $word
    end
  end
  for pattern in $argv
    string match -q -- $pattern "$given[1..2]"; and return 0
  end
  return 1
end
complete -c {0} -e
{3})",
      program, function, WithValues(places.front(), " "), lines);
}

class CompletionCommand final : public LocalCommand {
 public:
  explicit CompletionCommand(CLI::App& app)
      : LocalCommand(app, "completion", "print a script that completes commands in a shell"),
        app_(app) {
    options().Add("SHELL", shell_, "bash, zsh or fish").Required().OneOf({"bash", "zsh", "fish"});
  }

 private:
  ExitStatus RunHere(const Invocation& invocation) override {
    const std::string program = std::filesystem::path(invocation.program).filename();
    std::string function = "_" + program;
    std::ranges::replace_if(function, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    std::vector<Place> places;
    AddPlaces(app_, app_, "", places);
    if (shell_ == "bash") {
      Print("{}", BashScript(program, function, places));
    } else if (shell_ == "zsh") {
      Print("{}", ZshScript(program, function, places));
    } else {
      Print("{}", FishScript(program, function, places));
    }
    return ExitStatus::kDone;
  }

  const CLI::App& app_;
  std::string shell_;
};

}  // namespace

std::unique_ptr<Command> NewCompletionCommand(CLI::App& app) {
  return std::make_unique<CompletionCommand>(app);
}

}  // namespace lockstep
