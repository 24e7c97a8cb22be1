// The communicator of a process that is the only rank: every collective is its own result.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

std::unique_ptr<Communicator> MakeAlone();

}  // namespace lockstep
