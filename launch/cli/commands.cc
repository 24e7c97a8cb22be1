#include "launch/cli/command/commands.h"

namespace lockstep {

std::vector<std::unique_ptr<Command>> NewCommands(CLI::App& app) {
  std::vector<std::unique_ptr<Command>> commands;
#define COMMAND(Name) commands.push_back(New##Name##Command(app));
#include "launch/cli/command/commands.inc"
#undef COMMAND
  return commands;
}

}  // namespace lockstep
