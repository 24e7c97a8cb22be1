// The MPI communicator: one separate thread makes all calls to MPI.
//
// Promise: MpiCommunicator keeps the promise of comm/communicator.h for CPU tensors of dtype uint8, int32, int64,
// float16, bfloat16, float32 and float64.
//
// Invariants:
//   1. The constructor initialises MPI. A process makes at most one MpiCommunicator, and only if mpirun or Slurm
//      started the process.
//   2. One thread calls MPI_Init_thread, every operation and MPI_Finalize. MPI therefore needs no more than
//      MPI_THREAD_FUNNELED, and an operation overlaps with the caller's computation.
//   3. Finalize() is called only on success. A rank that fails must not call it, because MPI_Finalize could wait for
//      the other ranks for ever. The rank ends without it, and mpirun then ends the other ranks.
//   4. Long tensors are summed in pieces that fit in the cache. Between ranks of one machine this is three to seven
//      times as fast as one call of MPI, which allocates new scratch memory each time
//      (tests/bench/allreduce_against_torch.py).
//   5. ReduceScatterSum gives the same bits as AllReduceSum, because it makes the same MPI calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "base/files/core_wait.h"
#include "comm/communicator.h"

namespace lockstep {

class MpiCommunicator : public Communicator {
 public:
  // Initialises MPI. Keeps a reference to `recorder`. Throws Error (kPeer) if a call of MPI fails.
  explicit MpiCommunicator(FlightRecorder& recorder);

  // Waits for the operations that are queued, and ends the thread. Does not call MPI_Finalize.
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  // local_rank() returns the number of this rank among the ranks on its machine, counted from 0. local_ranks() returns
  // how many ranks are on this machine.
  int local_rank() const { return local_rank_; }
  int local_ranks() const { return local_ranks_; }

  // Returns the first rank that is on another machine than rank 0, or the world size if there is no such rank.
  int first_elsewhere() const { return first_elsewhere_; }

  Label MakeLabel(std::string_view text) override { return recorder_.MakeLabel(text); }
  Work AllReduceSum(at::Tensor tensor, Label label) override;
  Work Broadcast(at::Tensor tensor, int root, Label label) override;
  Work AllGather(at::Tensor output, at::Tensor input, Label label) override;
  Work ReduceScatterSum(at::Tensor output, at::Tensor input, Label label) override;
  void Barrier(Label label) override;
  double waited_s() const override { return waited_s_; }
  double waited_for_core_s() const override { return waited_for_core_s_; }
  at::Tensor Allocate(int64_t elements, at::ScalarType dtype) override;

  // Calls MPI_Finalize. Every rank must call Finalize() after its last operation.
  void Finalize();

 private:
  // Records an operation in the flight record, and enqueues it for the thread that calls MPI.
  Work Enqueue(Op op, size_t bytes, Label label, std::function<void()> operation);
  Work OnThread(std::function<void()> act);
  void Run();
  void StopThread();

  FlightRecorder& recorder_;
  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_ranks_ = 1;
  int first_elsewhere_ = 1;

  std::atomic<double> waited_s_ = 0;
  std::atomic<double> waited_for_core_s_ = 0;
  std::optional<CoreWait> core_wait_;  // of thread_, which makes it
  bool is_initialised_ = false;        // whether core_wait_ may be read on other threads
  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<std::packaged_task<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
