// A line on standard error of what a user should know and a run can bear.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace lockstep {

inline void Warn(const std::string& what) { fmt::print(stderr, "lockstep: warning: {}\n", what); }

}  // namespace lockstep
