// The ranks that a test linked with mpi_test_main.cc runs on.
#pragma once

#include "comm/mpi_communicator.h"

namespace lockstep {

MpiCommunicator& World();

}  // namespace lockstep
