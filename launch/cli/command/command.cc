#include "launch/cli/command/command.h"

#include <CLI/CLI.hpp>

#include "base/nearest.h"
#include "launch/cli/command/examples.h"
#include "launch/cli/command/topics.h"
#include "launch/job/early_signals.h"

namespace lockstep {
namespace {

// Returns the name of a command as a user types it, for example "bench step".
std::string NameIn(const CLI::App& parent, const std::string& name) {
  return parent.get_parent() == nullptr ? name : parent.get_name() + " " + name;
}

}  // namespace

Command::Command(CLI::App& parent, const std::string& name, const std::string& what)
    : app_(*parent.add_subcommand(name, what)), options_(app_), name_(NameIn(parent, name)) {
  if (what.empty()) app_.group("");
  app_.footer(ExamplesOf(name_));
}

bool Command::parsed() const { return app_.parsed(); }

int LocalCommand::Run(const Invocation& invocation) {
  if (const std::string about_starting = invocation.start.First(); !about_starting.empty()) {
    throw UsageError("{}: {} runs in one process", about_starting, name());
  }
  LetEarlySignalsCome();
  return static_cast<int>(RunHere(invocation));
}

const CLI::App& CommandOf(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* level = &app;
  for (const std::string& word : words) {
    if (word.starts_with('-')) continue;
    std::vector<std::string> names;
    const CLI::App* meant = nullptr;
    for (const CLI::App* command : level->get_subcommands([](const CLI::App*) { return true; })) {
      if (command->get_name() == word) meant = command;
      if (!command->get_group().empty()) names.push_back(command->get_name());
    }
    if (names.empty()) break;
    if (meant == nullptr) {
      if (const std::string answer = AnswerTo(word); level == &app && !answer.empty()) {
        throw UsageError("no command \"{}\": {}", word, answer);
      }
      throw UsageError("no command \"{}\"{} (known: {})", word, DidYouMean(word, names),
                       fmt::join(names, ", "));
    }
    level = meant;
  }
  return *level;
}

CLI::App& Group(CLI::App& app, const std::string& name, const std::string& what) {
  for (CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return *command;
  }
  CLI::App& group = *app.add_subcommand(name, what);
  group.require_subcommand(1);
  return group;
}

}  // namespace lockstep
