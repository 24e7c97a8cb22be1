// The MPI communicator: all of MPI's life on one thread of its own.
//
// Promise: as communicator.h says, for CPU tensors of dtype uint8, int32, int64, float32 and
// float64.
//
// Invariants:
//   1. MPI is initialised when this object is made and never before; only one is ever made, and
//      only in a process that mpirun or Slurm started.
//   2. One thread calls MPI_Init_thread, every operation and MPI_Finalize, so MPI needs no more
//      than MPI_THREAD_FUNNELED, and an operation overlaps with whatever the caller computes.
//   3. Finalize() is called on success only. A rank that fails leaves without it: mpirun then ends
//      the other ranks, where MPI_Finalize would wait for them for ever.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "comm/communicator.h"

namespace lockstep {

class MpiCommunicator : public Communicator {
 public:
  // Throws Error (kPeer).
  MpiCommunicator();

  // Ends the thread; where Finalize() was not called first, without MPI_Finalize, and with a wait
  // for the operations that are queued.
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }

  // This rank's number among the ranks on its machine, and how many they are.
  int local_rank() const { return local_rank_; }
  int local_ranks() const { return local_ranks_; }

  Work AllReduceSum(at::Tensor tensor) override;
  Work Broadcast(at::Tensor tensor, int root) override;
  Work AllGather(at::Tensor output, at::Tensor input) override;
  Work ReduceScatterSum(at::Tensor output, at::Tensor input) override;
  void Barrier() override;

  // MPI_Finalize: every rank must call it, after its last operation.
  void Finalize();

 private:
  Work Enqueue(std::function<void()> operation);
  void Run();
  void StopThread();

  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_ranks_ = 1;

  std::mutex mutex_;
  std::condition_variable queued_;
  std::deque<std::packaged_task<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
