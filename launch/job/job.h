// Job: finds out which rank this process is among the ranks that were started together, and makes the process join and
// leave these ranks.
//
// Promise: a process that mpirun or Slurm started is a rank of its job. Any other process runs alone and never uses
// MPI. A rank ends if the mpirun that started it ends, or if the other ranks end.
//
// Invariants:
//   1. A process that succeeds ends with Leave(): every rank finalises MPI and exits with the same status.
//   2. A rank that has an error of its own ends with Fail(). The rank prints the error, tells the watchdogs of the
//      other ranks (comm/watch/watchdog.h) and exits at once, without MPI_Finalize. mpirun treats this as a failure: it
//      ends the other ranks within about two seconds and returns this rank's status.
//   3. The watchdog watches a rank from the moment when the ranks have met until the rank's last collective.
//
// what can fail -> what the caller sees -> the test that shows it
//   more ranks than GPUs, or `device: CUDA` without a GPU -> Error (kUsage) on every rank
//     -> tests/bad_input_test.py, test_more_ranks_than_gpus
//   the ranks cannot meet, or two ranks share a GPU
//     -> the errors in launch/job/launcher.h and launch/machine/placement.h
//   too little shared memory for the ranks of a machine -> Error (kUsage), before the initialisation of MPI, which
//     would crash
//     -> tests/start_test.py, test_little_shared_memory
//   the NVIDIA driver is too old for this CUDA -> Error (kUsage); the job does not fall back to the CPU
//     -> launch/machine/driver_test.cc
//   mpirun is killed -> the kernel kills the ranks on that machine (PR_SET_PDEATHSIG)
//     -> tests/fault_test.py, test_mpirun_is_killed
//   a collective fails -> Error with the cause that the watchdog found -> tests/fault_test.py
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/flight_recorder.h"
#include "comm/mpi_communicator.h"
#include "comm/watch/watchdog.h"
#include "config/schema/config.pb.h"
#include "launch/machine/placement.h"
#include "trainer/step/world.h"

namespace lockstep {

class Job {
 public:
  // Returns whether mpirun or Slurm started this process. Throws Error (kUsage).
  static bool IsRank();

  // Joins the other ranks of the job, if there are any. Throws Error (kUsage, kPeer).
  Job();

  // The communicator for CPU tensors.
  Communicator& host() { return *host_; }

  // Chooses this rank's device and connects the ranks' devices. Every rank must call this function, once. Throws Error.
  World Connect(config::Config::Device device);

  // Returns a text that says what slows down the job's ranks; an empty string if nothing does. Call it after Connect().
  const std::string& what_is_narrow() const { return what_is_narrow_; }

  // The places of all ranks (launch/machine/placement.h), by rank. Call it after Connect().
  const std::vector<Place>& places() const { return places_; }

  // local_rank() is the number of this rank among the job's ranks on this machine, counted from 0. local_ranks() is the
  // number of these ranks.
  int local_rank() const { return mpi_ != nullptr ? mpi_->local_rank() : 0; }
  int local_ranks() const { return mpi_ != nullptr ? mpi_->local_ranks() : 1; }

  // The watchdog; null for a process that runs alone.
  Watchdog* watchdog() { return watchdog_ ? &*watchdog_ : nullptr; }

  // Leaves the job together with the other ranks. Every rank must call this function, after its last collective.
  void Leave();

  // Prints the error, tells the other ranks, and ends this process (invariant 2).
  [[noreturn]] void Fail(const Error& error);

 private:
  at::Device ChooseDevice(config::Config::Device wanted) const;
  void FindPlaces(at::Device device);
  std::unique_ptr<Communicator> ConnectGpus(at::Device device);

  FlightRecorder flight_;
  MpiCommunicator* mpi_ = nullptr;  // the same object as host_, if host_ uses MPI; otherwise null
  std::unique_ptr<Communicator> host_;
  std::unique_ptr<Communicator> gpus_;
  std::optional<Watchdog> watchdog_;
  std::vector<Place> places_;
  std::string what_is_narrow_;
};

}  // namespace lockstep
