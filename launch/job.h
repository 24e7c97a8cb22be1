// Job: this process among the ranks that were started together.
//
// Promise: a process that mpirun or Slurm started is a rank of its job, any other is alone and
// never touches MPI. A rank does not outlive the mpirun that started it.
//
// Invariants:
//   1. Leave() is the only good way out: every rank finalises MPI and exits with the same status.
//   2. Abort() is the only other: the rank exits at once, with no MPI_Finalize, which mpirun takes
//      for a failure: it ends the other ranks within about two seconds and returns this rank's
//      status.
//
// what can fail -> what the caller sees -> the test that shows it (tests/bad_input_test.py)
//   more ranks than GPUs, or CUDA asked for where there is none -> Error (kUsage) on every rank
//     -> test_more_ranks_than_gpus
//   some machines have GPUs and others not -> Error (kUsage) on every rank -> (needs two machines)
//   mpirun is killed -> the kernel kills its ranks (PR_SET_PDEATHSIG) -> test_mpirun_is_killed
#pragma once

#include <memory>
#include <optional>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/mpi_communicator.h"
#include "trainer/config.pb.h"
#include "trainer/world.h"

namespace lockstep {

class Job {
 public:
  // Whether mpirun or Slurm started this process.
  static bool IsRank();

  // Joins the other ranks, if there are any. Throws Error (kPeer).
  Job();

  // For CPU tensors.
  Communicator& host() { return *host_; }

  // Chooses this rank's device and connects the ranks' devices. Every rank must call it, once.
  // Throws Error on every rank.
  World Connect(config::Config::Device device);

  // Every rank must call it, after its last collective.
  void Leave();

  [[noreturn]] static void Abort(ExitStatus status);

 private:
  at::Device ChooseDevice(config::Config::Device wanted) const;

  MpiCommunicator* mpi_ = nullptr;  // host_, where it is MPI's
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> gpus_;
};

}  // namespace lockstep
