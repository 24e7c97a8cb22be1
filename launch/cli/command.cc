#include "launch/cli/command.h"

#include <CLI/CLI.hpp>

#include "launch/job/early_signals.h"

namespace lockstep {
namespace {

// "bench step"
std::string NameIn(const CLI::App& parent, const std::string& name) {
  return parent.get_parent() == nullptr ? name : parent.get_name() + " " + name;
}

}  // namespace

Command::Command(CLI::App& parent, const std::string& name, const std::string& what)
    : app_(*parent.add_subcommand(name, what)), options_(app_), name_(NameIn(parent, name)) {
  if (what.empty()) app_.group("");
}

bool Command::parsed() const { return app_.parsed(); }

int LocalCommand::Run(const Invocation& invocation) {
  if (const std::string about_starting = invocation.start.First(); !about_starting.empty()) {
    throw UsageError("{}: {} runs in one process", about_starting, name());
  }
  LetEarlySignalsCome();
  return static_cast<int>(RunHere(invocation));
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
