// The NCCL communicator: collectives between GPUs on a stream of their own.
//
// Promise: as communicator.h says, for tensors of `device`, of any dtype that NCCL knows.
//
// How an operation orders itself, without the host ever waiting:
//   1. record an event on the caller's current stream; the communication stream waits for it
//   2. enqueue the collective on the communication stream
//   3. record an event behind it; Wait() makes the then current stream wait for that
// The operation holds its tensors until Wait(), so their memory is not given to other work
// meanwhile.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// `bootstrap` carries NCCL's unique id and gives rank and world size. Throws Error: kUsage where
// two NCCLs disagree, kPeer where the ranks cannot connect.
std::unique_ptr<Communicator> MakeNccl(at::Device device, Communicator& bootstrap);

}  // namespace lockstep
