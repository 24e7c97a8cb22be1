// The NCCL communicator: collectives between GPUs on a separate stream.
//
// Promise: as communicator.h says, for tensors of `device`, of any dtype that NCCL knows. Its
// operations can be captured in a CUDA graph with the stream that they are called on.
//
// How an operation orders itself, without the host ever waiting:
//   1. record an event on the caller's current stream; the communication stream waits for it
//   2. enqueue the collective on the communication stream
//   3. record an event behind it; Wait() makes the then current stream wait for that
// The operation holds its tensors until Wait(), so their memory is not given to other work
// meanwhile. The second event also tells Poll() that the operation is done. Events are used again.
//
// Collectives that are captured into a graph are not in the flight record, because they do not run yet, and because a
// capture may fail on one rank alone. Replay() records the replays.
//
// Allocate(): buffers of up to 16 MiB come from ncclMemAlloc and lie in a symmetric window of all ranks. There an
// all-reduce of 1 MiB took 0.75 of the time that torch.distributed takes in plain memory on 2 and 4 H200, and one of 4
// MiB took 0.88. From 25 MiB on it took 0.97 on 2 but 1.06 on 4, and from 64 MiB on 1.1 to 1.3 on both, so larger
// buffers stay in plain memory. (Registration without a window made no difference to the all-reduce.)
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

// `bootstrap` carries NCCL's unique id and gives rank and world size. Keeps a reference to
// `recorder`. Throws Error: kUsage where two NCCLs disagree, kPeer where the ranks cannot connect.
std::unique_ptr<Communicator> MakeNccl(at::Device device, Communicator& bootstrap,
                                       FlightRecorder& recorder);

}  // namespace lockstep
