// Makes the communicator for a process that is the only rank. The result of each of its collectives is the input.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

std::unique_ptr<Communicator> MakeAlone(at::Device device);

}  // namespace lockstep
