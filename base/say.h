// Lines on standard error that a user reads.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace lockstep {

// What a user should know and a run can bear.
inline void Warn(const std::string& what) { fmt::print(stderr, "lockstep: warning: {}\n", what); }

// Why a command ends.
inline void PrintError(const std::string& what) {
  fmt::print(stderr, "lockstep: error: {}\n", what);
}

}  // namespace lockstep
