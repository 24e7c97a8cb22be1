#include "launch/job/job.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/cores.h"
#include "base/host_name.h"
#include "base/say.h"
#include "comm/alone.h"
#include "comm/nccl_communicator.h"
#include "comm/together.h"
#include "launch/job/hosts.h"
#include "launch/job/launcher.h"
#include "launch/job/sign.h"
#include "launch/job/stop_signals.h"
#include "launch/machine/driver.h"
#include "launch/machine/shared_memory.h"

namespace lockstep {

namespace {

void RequireSharedMemory(int local_ranks) {
  const std::optional<int64_t> free = FreeSharedMemory();
  const int64_t needed = local_ranks * kSharedMemoryPerRank;
  if (local_ranks < 2 || !free || *free >= needed) return;
  throw UsageError("/dev/shm has {} MiB left, and {} ranks need {}: {}", *free >> 20, local_ranks,
                   needed >> 20, kMoreSharedMemory);
}

// Ends this process if MPI has found other ranks than the launcher has started. In Open MPI 5 rank 0 becomes the
// only rank of a world of its own if its mpirun has ended before MPI_Init(), and would train there.
void RequireAllRanks(int world_size) {
  const int ranks = RanksOfJob(std::getenv);
  if (ranks == 0 || ranks == world_size) return;
  PrintError(
      fmt::format("the launcher has started {} ranks, and MPI has found {}: mpirun or srun has "
                  "ended, hides its variables from the ranks, or is of another series of Open MPI "
                  "than the library (lockstep doctor)",
                  ranks, world_size));
  std::_Exit(static_cast<int>(ExitStatus::kPeer));
}

// Restricts all threads of this process, and the threads that they will start, to `cores`.
void KeepTo(const cpu_set_t& cores) {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof(cores), &cores);
  }
}

}  // namespace

bool Job::IsRank() { return FindLauncher(std::getenv) != Launcher::kNone; }

Job::Job() {
  // Without this variable Kineto, the profiler, prints a message to standard error on a machine that has no GPU.
  setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  if (!IsRank()) {
    host_ = MakeAlone(at::kCPU);
    Give(Sign::kMet);
    return;
  }
  RequireSharedMemory(LocalRanks(std::getenv));
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the parent died before prctl() was called, the kernel sends no signal. This process then has another parent.
  if (getppid() != parent) std::_Exit(static_cast<int>(ExitStatus::kPeer));
  // SIGTERM is blocked here and in every thread that is made later, because the watchdog receives SIGTERM in a thread
  // of its own.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  // If all ranks are on one machine, Open MPI's TCP transport is left out, so that this process does not listen on the
  // network.
  if (AreOnOneMachine(std::getenv)) setenv("OMPI_MCA_btl", "^tcp", /*overwrite=*/0);
  // If a file size limit (ulimit -f) keeps MPI from making its files, SIGXFSZ must end this rank, because with SIGXFSZ
  // ignored MPI would wait for ever.
  signal(SIGXFSZ, SIG_DFL);
  auto mpi = std::make_unique<MpiCommunicator>(flight_);
  signal(SIGXFSZ, SIG_IGN);
  mpi_ = mpi.get();
  host_ = std::move(mpi);
  RequireAllRanks(host_->world_size());
  flight_.SetRank(host_->rank(), host_->world_size());
  const auto say = [](const std::string& error, bool is_silence) {
    if (is_silence) Give(Sign::kSilence);
    PrintError(error);
  };
  watchdog_.emplace(*host_, mpi_->first_elsewhere(), flight_, say, StopSignals::TakeTerm);
  if (host_->rank() == 0) Give(Sign::kMet);
}

World Job::Connect(config::Config::Device wanted) {
  std::optional<at::Device> device;
  Together(*host_, [&] { device = ChooseDevice(wanted); });
  FindPlaces(*device);
  // All ranks know all places, so if RequireOwnGpus() throws an error, it throws the same error on every rank.
  try {
    RequireOwnGpus(places_);
  } catch (const Error& error) {
    throw Error::OnEveryRank(error.status(), error.what());
  }
  what_is_narrow_ = WhatIsNarrow(places_, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  places_ = BesideTheirGpus(places_);
  KeepTo(places_[host_->rank()].cores);
  const int cores = CoresOf(places_, host_->rank());
  const int all_cores = CoresTogether(places_, host_->rank());
  FlightRecorder* const flight = mpi_ != nullptr ? &flight_ : nullptr;
  if (!device->is_cuda()) {
    at::set_num_threads(cores);
    return {*device,       *host_,    *host_, cores,     local_rank(),
            local_ranks(), all_cores, flight, watchdog()};
  }
  Together(*host_, [&] {
    c10::cuda::set_device(device->index());
    // The default stream cannot be captured in a CUDA graph.
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
  });
  // ConnectGpus() is not called inside Together(): while NCCL connects, the ranks wait for each other, so a rank on
  // which the connection fails must end and cannot agree with the other ranks on the error.
  gpus_ = host_->world_size() > 1 ? ConnectGpus(*device) : MakeAlone(*device);
  if (watchdog_) watchdog_->Watch(gpus_.get());
  return {*device,       *gpus_,    *host_, cores,     local_rank(),
          local_ranks(), all_cores, flight, watchdog()};
}

std::unique_ptr<Communicator> Job::ConnectGpus(at::Device device) {
  // If all ranks are on one machine, NCCL's ranks find each other through the loopback interface.
  if (MachinesOf(places_) == 1) setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  try {
    return MakeNccl(device, *host_, flight_);
  } catch (const Error& error) {
    if (error.status() != ExitStatus::kPeer || MachinesOf(places_) == 1) throw;
    std::set<std::string> names;
    for (const Interface& interface : InterfacesHere()) names.insert(interface.name);
    throw Error(
        error.status(),
        fmt::format("{}; name the interface that leads to the other machines, one of {}, in "
                    "NCCL_SOCKET_IFNAME (docs/clusters.md)",
                    error.what(), fmt::join(names, ", ")));
  }
}

at::Device Job::ChooseDevice(config::Config::Device wanted) const {
  if (wanted == config::Config::CPU) return at::kCPU;
  const int gpus = VisibleGpus();
  if (gpus == 0 && wanted == config::Config::AUTO) return at::kCPU;
  if (gpus == 0) {
    throw UsageError(
        "{} rank{} but 0 visible GPUs on this machine: set device: CPU, or see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES",
        local_ranks(), local_ranks() == 1 ? "" : "s");
  }
  // If the launcher has given each rank one GPU, the rank sees only that GPU, as number 0. The index of the GPU is
  // therefore local_rank() modulo the number of visible GPUs. RequireOwnGpus() throws if there are too few GPUs.
  return {at::kCUDA, static_cast<c10::DeviceIndex>(local_rank() % gpus)};
}

void Job::FindPlaces(at::Device device) {
  Place own;
  HostName().copy(own.machine, sizeof(own.machine) - 1);
  sched_getaffinity(0, sizeof(own.cores), &own.cores);
  own.process = getpid();
  own.most_cores = CoresOfTime();
  if (device.is_cuda()) {
    own.visible_gpus = VisibleGpus();
    own.gpu = UuidOf(device.index());
    own.beside_gpu = CoresBeside(device.index());
  }
  places_ = GatherValues(own, "where the ranks are", *host_);
}

void Job::Leave() {
  if (watchdog_) {
    watchdog_->Watch(nullptr);
    watchdog_->Leave();
  }
  gpus_.reset();
  if (mpi_ != nullptr) mpi_->Finalize();
  watchdog_.reset();
  if (host_->rank() == 0) Give(Sign::kLeaves);
}

void Job::Fail(const Error& error) {
  // If a collective has failed, the watchdog looks for the cause in the flight records of all ranks, which say more
  // than this rank's error.
  if (error.status() == ExitStatus::kPeer && watchdog_) watchdog_->Investigate(error);
  const bool alone = host_->world_size() == 1;
  PrintError(alone ? error.what() : fmt::format("rank {}: {}", host_->rank(), error.what()));
  if (watchdog_) watchdog_->EndAll(error);
  std::_Exit(static_cast<int>(error.status()));
}

}  // namespace lockstep
