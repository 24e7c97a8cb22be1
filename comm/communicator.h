// Communicator: the collectives of one group of ranks.
//
// Promise: if every rank calls the same operations in the same order, with tensors of the same size and dtype,
// all-reduces, broadcasts and all-gathers give the same bits on every rank. An operation that returns a Work returns at
// once. The caller may read, write or free its tensors only after Wait().
//
// There are two implementations, and a trivial one for a process that runs alone (comm/alone.h):
//   NCCL (comm/nccl_communicator.h): for tensors on one GPU. Operations run on a separate stream, after the
//     work that is queued on the caller's current stream. Wait() makes the current stream wait, and not the host.
//   MPI (comm/mpi_communicator.h): for CPU tensors. Operations run on a separate thread, in order. Wait()
//     blocks the calling thread.
//
// Invariants:
//   1. Tensors are contiguous. Sums are computed in the tensor's dtype.
//   2. Operations of one communicator complete in the order of the calls.
//   3. Every operation is written to the flight record (comm/flight_recorder.h) before the operation can hang. The
//      operations that a CUDA graph holds are an exception: only Replay() of the graph is recorded.
//
// what can fail -> what the caller sees -> the test that shows it
//   a tensor of the wrong device, dtype, layout or size -> Error (kBug), before anything is sent
//     -> comm/communicator_test.cc, RefusesTensorsThatItCannotSend
//   an MPI or NCCL call fails -> Error (kPeer) from the operation, Wait() or the constructor
//     -> comm/communicator_test.cc, AnMpiErrorComesOutOfWait
//   NCCL reports an asynchronous error -> Error (kPeer) from Poll(), on the watchdog's thread
//     -> (no way to cause one on a healthy machine)
//   a rank died, stopped, or makes a different call -> the watchdog ends the run (comm/watch/watchdog.h)
//     -> tests/fault_test.py
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string_view>
#include <utility>

#include "comm/flight_recorder.h"

namespace lockstep {

// An operation that may still be running.
class Work {
 public:
  Work() = default;
  explicit Work(std::function<void()> wait) : wait_(std::move(wait)) {}

  // With MPI, returns when the operation is done. With NCCL, makes the current stream wait until the operation is done.
  // A second call does nothing. Throws Error (kPeer).
  void Wait() {
    if (wait_) std::exchange(wait_, nullptr)();
  }

 private:
  std::function<void()> wait_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // Makes the label that describes a collective in the flight record, for example "bucket 2: fc.weight, fc.bias".
  virtual Label MakeLabel(std::string_view text) = 0;

  // Replaces `tensor` on every rank by the sum of all ranks' tensors.
  [[nodiscard]] virtual Work AllReduceSum(at::Tensor tensor, Label label) = 0;

  // Replaces `tensor` on every rank by the tensor of rank `root`.
  [[nodiscard]] virtual Work Broadcast(at::Tensor tensor, int root, Label label) = 0;

  // Writes the inputs of all ranks to `output`, one after the other in the order of the ranks. `output` has world_size
  // times as many elements as `input`. `input` may be this rank's part of `output`.
  [[nodiscard]] virtual Work AllGather(at::Tensor output, at::Tensor input, Label label) = 0;

  // Writes this rank's part of the sum of all ranks' inputs to `output`. `input` has world_size times as many elements
  // as `output`. `output` may be this rank's part of `input`; the other parts of `input` then keep their values.
  [[nodiscard]] virtual Work ReduceScatterSum(at::Tensor output, at::Tensor input, Label label) = 0;

  // Returns when every rank has called Barrier() and all earlier operations of this communicator are done.
  virtual void Barrier(Label label) = 0;

  // Returns a tensor of zeros, in the kind of memory with which operations are fastest. The communicator must outlive
  // the tensor. Every rank must call this function.
  virtual at::Tensor Allocate(int64_t elements, at::ScalarType dtype) = 0;

  // Calls `launch`, which enqueues a CUDA graph on the current stream, and records the whole graph in the flight record
  // as one operation, because captured collectives are not recorded when a graph is replayed. The graph must hold the
  // same collectives on every rank.
  virtual void Replay(const std::function<void()>& launch, Label /*label*/) { launch(); }

  // Returns the seconds that the host has spent so far on enqueuing MPI operations and on waiting for them. Other
  // communicators return 0, because with NCCL only the device waits for an operation.
  virtual double waited_s() const { return 0; }

  // Returns for how many of these seconds the thread that exchanges data was ready to run but waited for a core.
  virtual double waited_for_core_s() const { return 0; }

  // Marks in the flight record which operations are done. Throws Error (kPeer) if the communicator has failed. Any
  // thread may call this function, such as the watchdog's thread. It never waits.
  virtual void Poll() {}
};

}  // namespace lockstep
