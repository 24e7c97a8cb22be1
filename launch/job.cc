#include "launch/job.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "comm/alone.h"
#include "comm/nccl_communicator.h"
#include "launch/stop_signals.h"
#include "trainer/task.h"
#include "trainer/together.h"

namespace lockstep {

bool Job::IsRank() {
  // mpirun of Open MPI, and srun --mpi=pmix.
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

Job::Job() {
  if (!IsRank()) {
    host_ = MakeAlone(at::kCPU);
    return;
  }
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above.
  if (getppid() != parent) std::_Exit(static_cast<int>(ExitStatus::kPeer));
  // The watchdog takes it; every thread that is made from here on blocks it, too.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  auto mpi = std::make_unique<MpiCommunicator>(flight_);
  mpi_ = mpi.get();
  host_ = std::move(mpi);
  flight_.SetRank(host_->rank(), host_->world_size());
  watchdog_.emplace(*host_, mpi_->local_ranks() == mpi_->world_size(), flight_, PrintError,
                    StopSignals::TakeTerm);
}

World Job::Connect(config::Config::Device wanted) {
  std::optional<at::Device> device;
  Together(*host_, [&] { device = ChooseDevice(wanted); });

  const at::Tensor ranks_with_gpu = at::full({1}, device->is_cuda() ? 1 : 0, at::kInt);
  host_->AllReduceSum(ranks_with_gpu, host_->MakeLabel("ranks with a GPU")).Wait();
  const int with_gpu = ranks_with_gpu.item<int>();
  if (with_gpu != 0 && with_gpu != host_->world_size()) {
    throw Error::OnEveryRank(
        ExitStatus::kUsage,
        fmt::format("{} of {} ranks have a GPU: use machines that are alike, or set device: CPU",
                    with_gpu, host_->world_size()));
  }
  const int local_ranks = mpi_ != nullptr ? mpi_->local_ranks() : 1;
  FlightRecorder* const flight = mpi_ != nullptr ? &flight_ : nullptr;
  if (!device->is_cuda()) {
    const World world{*device, *host_, *host_, local_ranks, flight, watchdog()};
    at::set_num_threads(CoresPerRank(world));
    return world;
  }
  Together(*host_, [&] {
    c10::cuda::set_device(device->index());
    // The default stream cannot be captured in a CUDA graph.
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
  });
  // Its ranks wait for each other, so a rank on which this fails cannot stay to agree on the error.
  gpus_ = host_->world_size() > 1 ? MakeNccl(*device, *host_, flight_) : MakeAlone(*device);
  if (watchdog_) watchdog_->Watch(gpus_.get());
  return {*device, *gpus_, *host_, local_ranks, flight, watchdog()};
}

at::Device Job::ChooseDevice(config::Config::Device wanted) const {
  if (wanted == config::Config::CPU) return at::kCPU;
  const int gpus = c10::cuda::device_count();
  const int local_ranks = mpi_ != nullptr ? mpi_->local_ranks() : 1;
  const int local_rank = mpi_ != nullptr ? mpi_->local_rank() : 0;
  if (gpus == 0 && wanted == config::Config::AUTO) return at::kCPU;
  if (gpus < local_ranks) {
    throw UsageError(
        "{} rank{} but {} visible GPU{} on this machine: start fewer ranks, set device: CPU, or "
        "see "
        "nvidia-smi and CUDA_VISIBLE_DEVICES",
        local_ranks, local_ranks == 1 ? "" : "s", gpus, gpus == 1 ? "" : "s");
  }
  return {at::kCUDA, static_cast<c10::DeviceIndex>(local_rank)};
}

void Job::Leave() {
  if (watchdog_) {
    watchdog_->Watch(nullptr);
    watchdog_->Leave();
  }
  gpus_.reset();
  if (mpi_ != nullptr) mpi_->Finalize();
  watchdog_.reset();
}

void Job::Fail(const Error& error) {
  // Why a collective failed the records of all ranks know better than the one that noticed.
  if (error.status() == ExitStatus::kPeer && watchdog_) watchdog_->Investigate(error);
  const bool alone = host_->world_size() == 1;
  PrintError(alone ? error.what() : fmt::format("rank {}: {}", host_->rank(), error.what()));
  if (watchdog_) watchdog_->EndAll(error);
  std::_Exit(static_cast<int>(error.status()));
}

void PrintError(const std::string& message) {
  fmt::print(stderr, "lockstep: error: {}\n", message);
}

}  // namespace lockstep
