// Declares functions that the commands of `lockstep bench` share. Each of these commands measures something on this
// machine.
#pragma once

#include <string>

#include "launch/cli/command/command.h"
#include "trainer/step/world.h"

namespace lockstep {

// Returns the command `lockstep bench`, to which its subcommands are added.
CLI::App& BenchGroup(CLI::App& app);

// Adds the option --json, which makes the command print a line of JSON for each measurement instead of a table.
void AddJson(CommandOptions& options, bool& json);

// Describes the devices of all ranks, for example "8 x NVIDIA H100 80GB HBM3" or "2 ranks on the CPU".
std::string MachineText(const World& world);

}  // namespace lockstep
