// The communicator of a process that is the only rank: every collective is its own result.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

std::unique_ptr<Communicator> MakeAlone(at::Device device);

}  // namespace lockstep
