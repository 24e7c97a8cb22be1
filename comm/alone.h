// The communicator for a process that is the only rank. The result of every collective is its input.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

std::unique_ptr<Communicator> MakeAlone(at::Device device);

}  // namespace lockstep
