// Declares New...Command() for each command in the list of all commands (commands.inc).
#pragma once

#include <memory>
#include <vector>

#include "launch/cli/command/command.h"

namespace lockstep {

#define COMMAND(Name) std::unique_ptr<Command> New##Name##Command(CLI::App& app);
#include "launch/cli/command/commands.inc"
#undef COMMAND

// Adds each command to `app` and returns the commands.
std::vector<std::unique_ptr<Command>> NewCommands(CLI::App& app);

}  // namespace lockstep
