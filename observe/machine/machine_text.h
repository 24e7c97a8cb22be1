// Writes machine readings as text for a person. A figure that a reading does not have is left out of the text.
// (observe/machine/machine_text_test.cc)
#pragma once

#include <functional>
#include <string>

#include "observe/machine/machine_reading.h"

namespace lockstep {

// Returns a short text for a live line: "GPU 97 %  71 of 80 GiB  684 W  64 C". With several GPUs the text has the
// least and the greatest use, and the greatest value of each other figure. Without GPUs the text is
// "CPU 93 %  3.2 of 15.6 GiB".
std::string LiveText(const MachineReading& reading);

// The user who owns a process, and the process's command line.
struct ProcessName {
  std::string user;
  std::string command;
};

// Returns the name of a process of this machine. Both texts are empty if this process cannot see the process `pid`, for
// example because this process runs in a container. `proc` is the folder of the proc file system, "/proc".
ProcessName NameProcess(int pid, const std::string& proc);

// Returns a reading as several lines, which `lockstep watch` shows. `name` returns the name of the process with the id
// `pid`.
std::string MachineTable(const MachineReading& reading,
                         const std::function<ProcessName(int pid)>& name);

}  // namespace lockstep
