// Parts that the commands of `lockstep bench` share. Each of these commands measures something on this machine.
#pragma once

#include <string>

#include "launch/cli/command.h"
#include "trainer/step/world.h"

namespace lockstep {

// `lockstep bench`, for its commands.
CLI::App& BenchGroup(CLI::App& app);

// Adds --json: a line of JSON for each measurement instead of a table.
void AddJson(CommandOptions& options, bool& json);

// "8 x NVIDIA H100 80GB HBM3", "2 ranks on the CPU".
std::string MachineText(const World& world);

}  // namespace lockstep
