// Text of machine readings for a person.
//
// (observe/machine/machine_text_test.cc)
#pragma once

#include <functional>
#include <string>

#include "observe/machine/machine_reading.h"

namespace lockstep {

// For a live line: "GPU 97 %  71 of 80 GiB  684 W  64 C". Of several GPUs the least and the most use, and the most of
// all else; without GPUs "CPU 93 %  3.2 of 15.6 GiB".
std::string LiveText(const MachineReading& reading);

// Who a process is.
struct ProcessName {
  std::string user;
  std::string command;
};

// Of a process of this machine; both empty: it is not seen from here, as in a container. `proc`: "/proc".
ProcessName NameProcess(int pid, const std::string& proc);

// All of a reading, a line a row, as `lockstep watch` shows it.
std::string MachineTable(const MachineReading& reading,
                         const std::function<ProcessName(int pid)>& name);

}  // namespace lockstep
