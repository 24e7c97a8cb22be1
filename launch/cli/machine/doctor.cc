// `lockstep doctor`: checks whether this machine, or with -n each machine of a job, has everything that a run needs.
//
// Promise: for each problem that a check finds, the command prints a line that describes the problem, and in most cases
// says what to do. A check that cannot be made is left out. No file is left on the disk.
//
// what can fail -> what the caller sees -> the test that shows it (tests/doctor_test.py)
//   a check finds a problem -> a line that begins with warn or fail; exit status 2 if any check fails
//     -> one test for each check
//   the ranks cannot meet -> the Error that a run would end with -> test_little_shared_memory
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <mpi.h>
#include <nccl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/cores.h"
#include "base/files/output_file.h"
#include "base/host_name.h"
#include "base/say.h"
#include "base/version.h"
#include "comm/collective_bench.h"
#include "comm/together.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/job/hosts.h"
#include "launch/machine/child_process.h"
#include "launch/machine/driver.h"
#include "launch/machine/findings.h"
#include "launch/machine/gpu_checks.h"
#include "launch/machine/shared_memory.h"
#include "launch/machine/unusable_gpus.h"

namespace lockstep {
namespace {

struct DoctorOptions {
  std::string folder = ".";  // the folder in which runs will be
  config::Config::Device device = config::Config::AUTO;
  bool json = false;
};

constexpr double kMib = 1 << 20;
constexpr double kGib = 1 << 30;

// Converts CUDA's version number, such as 13000, to a text: "13.0".
std::string CudaText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// For each of the libraries that are named below, returns the paths from which this process has loaded the library.
// Each of these libraries must be loaded only once: a library with two paths was loaded twice, and each copy has its
// own state.
std::map<std::string, std::set<std::string>> LoadedLibraries() {
  std::map<std::string, std::set<std::string>> paths;
  const auto add = [](dl_phdr_info* library, size_t, void* to) {
    const std::string_view path = library->dlpi_name;
    for (const char* name : {"libnccl.so", "libcudnn.so", "libcudart.so", "libcublas.so",
                             "libtorch_cuda.so", "libmpi.so", "libstdc++.so"}) {
      const std::string_view file = path.substr(path.rfind('/') + 1);
      if (!file.starts_with(name)) continue;
      char* const real = realpath(library->dlpi_name, nullptr);
      (*static_cast<decltype(paths)*>(to))[name].insert(real != nullptr ? real : std::string(path));
      std::free(real);
    }
    return 0;
  };
  dl_iterate_phdr(add, &paths);
  return paths;
}

Finding CheckLibraries() {
  int nccl = 0;
  ncclGetVersion(&nccl);
  int cuda = 0;
  cudaRuntimeGetVersion(&cuda);
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  const int64_t cudnn = hooks.versionRuntimeCuDNN();
  Finding finding{.check = "libraries",
                  .figure = fmt::format(
                      "lockstep {}, LibTorch {}, CUDA {}, cuDNN {}.{}.{}, NCCL {}.{}.{}", kVersion,
                      TORCH_VERSION, CudaText(cuda), cudnn / 10000, cudnn / 100 % 100, cudnn % 100,
                      nccl / 10000, nccl / 100 % 100, nccl % 100)};
  constexpr char kOthers[] = "unset LD_LIBRARY_PATH and LD_PRELOAD, which bring other libraries";
  for (const auto& [name, paths] : LoadedLibraries()) {
    if (paths.size() < 2) continue;
    return {.check = "libraries",
            .state = State::kFail,
            .figure = fmt::format("{} is loaded {} times: {}", name, paths.size(),
                                  fmt::join(paths, ", ")),
            .advice = kOthers};
  }
  std::vector<std::string> others;
  if (nccl != NCCL_VERSION_CODE) {
    others.push_back(fmt::format("NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
  }
  if (cuda / 1000 != CUDART_VERSION / 1000) {
    others.push_back(fmt::format("CUDA {}", CudaText(CUDART_VERSION)));
  }
  if (cudnn / 10000 != hooks.versionCuDNN() / 10000) {
    others.push_back(fmt::format("cuDNN {}", hooks.versionCuDNN() / 10000));
  }
  if (!others.empty()) {
    finding.state = State::kFail;
    finding.figure += fmt::format("; built with {}", fmt::join(others, ", "));
    finding.advice = kOthers;
  }
  return finding;
}

// Returns a finding with the versions of glibc and of the C++ compiler's runtime, which are the machine's own, and of
// those with which the program was built. The program starts with these versions or newer ones.
Finding CheckRuntime() {
  const std::set<std::string> paths = LoadedLibraries()["libstdc++.so"];
  std::vector<std::string> files;
  for (const std::string& path : paths) files.push_back(path.substr(path.rfind('/') + 1));
  return {.check = "runtime",
          .figure = fmt::format("glibc {}, {}; built with glibc {}.{} and libstdc++ of GCC {}",
                                gnu_get_libc_version(), fmt::join(files, ", "), __GLIBC__,
                                __GLIBC_MINOR__, _GLIBCXX_RELEASE)};
}

Finding CheckDriver(const DoctorOptions& options) {
  const int gpus = options.device == config::Config::CPU ? 0 : VisibleGpus();
  int version = 0;
  cudaDriverGetVersion(&version);
  const std::string name = InstalledDriver();
  if (version == 0) {
    return {.check = "driver", .figure = "none: training is on the CPU"};
  }
  Finding finding{.check = "driver",
                  .figure = fmt::format("NVIDIA {} (CUDA {}), {} visible GPU{}",
                                        name.empty() ? "of unknown version" : name,
                                        CudaText(version), gpus, gpus == 1 ? "" : "s")};
  if (gpus == 0 && options.device != config::Config::CPU) {
    finding.state = State::kWarn;
    finding.advice = "training is on the CPU: see nvidia-smi and CUDA_VISIBLE_DEVICES";
  }
  return finding;
}

// Returns `name` and the version that follows it in `text`, for example "Open MPI 4.1.4"; an empty string if the text
// has no version.
std::string VersionIn(const std::string& text, const std::string& name) {
  // Open MPI's library says "Open MPI v4.1.4, package: ...", and mpirun prints "mpirun (Open MPI) 4.1.4". PMIx says
  // "OpenPMIx 5.0.7a1 (PMIx Standard: ...", and prterun prints "prterun (PRRTE) 3.0.8".
  const size_t at = text.find(name);
  const size_t digit = text.find_first_of("0123456789", at);
  if (at == std::string::npos || digit == std::string::npos) return "";
  const size_t end = std::min(text.find_first_of(" ,\n", digit), text.size());
  return name + " " + text.substr(digit, end - digit);
}

std::string OpenMpiIn(const std::string& text) { return VersionIn(text, "Open MPI"); }

// Returns the series of a version such as "Open MPI 4.1.4": "Open MPI 4".
std::string SeriesOf(const std::string& version) { return version.substr(0, version.find('.')); }

// Returns the versions of the PMIx that Open MPI 5 has loaded, through which its ranks meet, and of the PRRTE that its
// mpirun starts: " (PMIx 5.0.7a1, PRRTE 3.0.8)". Returns an empty string if neither is known.
std::string PartsOfOpenMpi5() {
  std::vector<std::string> parts;
  if (void* const pmix = dlsym(RTLD_DEFAULT, "PMIx_Get_version"); pmix != nullptr) {
    parts.push_back(VersionIn(reinterpret_cast<const char* (*)()>(pmix)(), "PMIx"));
  }
  const std::string prterun = FindInPath("prterun");
  if (!prterun.empty()) {
    // Without PRTE_PREFIX a prterun that lies elsewhere than it was installed does not find the text with its version.
    std::vector<std::string> command{"env"};
    if (std::getenv("PRTE_PREFIX") == nullptr) {
      const std::string folder = prterun.substr(0, prterun.rfind('/'));
      command.push_back("PRTE_PREFIX=" + folder.substr(0, folder.rfind('/')));
    }
    command.insert(command.end(), {prterun, "--version"});
    std::string output;
    RunAndRead(command, output);
    parts.push_back(VersionIn(output, "PRRTE"));
  }
  std::erase(parts, "");
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

Finding CheckMpi(const Job& job, int ranks) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string library = OpenMpiIn(text);
  Finding finding{.check = "mpi", .figure = library};
  std::string output;
  try {
    RunAndRead({"mpirun", "--version"}, output);
  } catch (const Error&) {
    finding.state = State::kWarn;
    finding.figure += ", no mpirun";
    finding.advice = "for more than one rank install it (openmpi-bin), or put it in PATH";
    return finding;
  }
  const std::string program = OpenMpiIn(output);
  if (program != library) {
    finding.state = State::kFail;
    const std::string first = output.substr(0, output.find('\n'));
    finding.figure += fmt::format(", but mpirun is {}", !program.empty() ? program
                                                        : !first.empty() ? first
                                                                         : "none that starts");
    finding.advice = "put the mpirun of the library first in PATH, or ranks will not meet";
    const std::set<std::string> both{SeriesOf(program), SeriesOf(library)};
    if (both == std::set<std::string>{"Open MPI 4", "Open MPI 5"}) {
      // Such ranks may have met, because they have loaded that mpirun's library, or because PMIx understands both.
      finding.state = State::kWarn;
      finding.advice = fmt::format(
          "ranks may not meet (lockstep -n 2 doctor tries it): put the mpirun of {} first in PATH, "
          "or the folder of that mpirun's libmpi into LD_LIBRARY_PATH",
          fmt::join(LoadedLibraries()["libmpi.so"], ", "));
    }
    return finding;
  }
  if (SeriesOf(library) == "Open MPI 5") finding.figure += PartsOfOpenMpi5();
  const int machines = static_cast<int>(MachinesOf(job.places()));
  if (ranks == 1) {
    finding.figure += ", one process: add -n 2 to see ranks meet";
  } else if (machines > 0) {
    finding.figure +=
        fmt::format(", {} ranks on {} machine{}", ranks, machines, machines == 1 ? "" : "s");
  }
  return finding;
}

Finding CheckCores(const Job& job, const World& world) {
  const Place& own = job.places()[world.rank()];
  const auto of_machine = sysconf(_SC_NPROCESSORS_ONLN);
  Finding finding{.check = "cores",
                  .figure = fmt::format("{} for this rank, which may run on {} of {}", world.cores,
                                        CPU_COUNT(&own.cores), of_machine),
                  .value = static_cast<double>(world.cores),
                  .unit = "cores"};
  if (CPU_COUNT(&own.beside_gpu) > 0 && CPU_COUNT(&own.beside_gpu) < of_machine) {
    cpu_set_t both;
    CPU_AND(&both, &own.cores, &own.beside_gpu);
    finding.figure += fmt::format(", {} of them beside its GPU", CPU_COUNT(&both));
    if (CPU_COUNT(&both) == 0) {
      finding.state = State::kWarn;
      finding.advice = "bind the rank to its GPU's part of the machine (nvidia-smi topo -m)";
    }
  }
  if (!job.what_is_narrow().empty()) {
    finding.state = State::kWarn;
    finding.figure = job.what_is_narrow();
  } else if (own.most_cores < job.local_ranks()) {
    finding.state = State::kWarn;
    finding.figure +=
        fmt::format("; control groups allow the time of {:.1f} for all ranks", own.most_cores);
    finding.advice = "start the container with more (docker --cpus), or fewer ranks";
  }
  return finding;
}

Finding CheckMemory(const Job& job) {
  std::ifstream file("/proc/meminfo");
  double available = 0;
  for (std::string name, rest; file >> name && std::getline(file, rest);) {
    if (name == "MemAvailable:") available = std::strtod(rest.c_str(), nullptr) * 1024;
  }
  const double each = std::min(available, BytesOfMemory()) / job.local_ranks() / kGib;
  constexpr double kLeast = 2;  // GiB; LibTorch and CUDA take half of this memory for themselves
  return {.check = "memory",
          .state = each < kLeast ? State::kWarn : State::kOk,
          .figure = fmt::format("{:.1f} GiB for each rank", each),
          .advice = each < kLeast ? "end other programs, or start fewer ranks" : "",
          .value = each,
          .unit = "GiB"};
}

Finding CheckOpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kLeast = 1024;
  const bool few = limit.rlim_cur < kLeast;
  return {.check = "open files",
          .state = few ? State::kWarn : State::kOk,
          .figure = fmt::format("{} may be open at once", limit.rlim_cur),
          .advice = few ? "ulimit -n 4096, or loaders and checkpoints run out of them" : "",
          .value = static_cast<double>(limit.rlim_cur),
          .unit = "files"};
}

Finding CheckSharedMemory(int ranks) {
  const std::optional<int64_t> free = FreeSharedMemory();
  Finding finding{.check = "/dev/shm"};
  if (!free) {
    finding.state = State::kWarn;
    finding.figure = "not there";
    finding.advice = "ranks of one machine exchange through it: mount it, or use one rank";
    return finding;
  }
  // If there are several ranks, Open MPI has already given them their shared memory, so they need no more. A single
  // process needs none itself. The check then asks for enough shared memory for two ranks, the smallest job that uses
  // it.
  const int64_t needed = ranks > 1 ? 0 : 2 * kSharedMemoryPerRank;
  finding.value = static_cast<double>(*free) / kMib;
  finding.unit = "MiB";
  finding.figure = fmt::format("{:.0f} MiB free", finding.value);
  if (*free < needed) {
    finding.state = State::kFail;
    finding.figure += fmt::format(" of {} that 2 ranks need", needed >> 20);
    finding.advice = kMoreSharedMemory;
  }
  return finding;
}

constexpr WriteErrors kWriting{.status = ExitStatus::kUsage,
                               .when_full = "free some space, or name another --folder"};

Finding CheckDisk(const std::string& folder) {
  Finding finding{.check = "disk"};
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) {
    finding.state = State::kFail;
    finding.figure = fmt::format("{}: {}", folder, std::strerror(errno));
    finding.advice = "name the folder that runs will be in: --folder";
    return finding;
  }
  constexpr size_t kBytes = size_t{128} << 20;
  const double free_gib = static_cast<double>(status.f_bavail * status.f_frsize) / kGib;
  try {
    const std::string path = fmt::format("{}/.lockstep-doctor-{}", folder, getpid());
    OutputFile file(path, kWriting);
    // The file has no name from here on, so the kernel removes the file when this process ends, for whatever reason.
    unlink(path.c_str());
    std::vector<std::byte> memory(kBytes + OutputFile::kDirectAlignment, std::byte{0x5a});
    void* begin = memory.data();
    size_t space = memory.size();
    std::align(OutputFile::kDirectAlignment, kBytes, begin, space);
    const std::span<const std::byte> bytes(static_cast<const std::byte*>(begin), kBytes);
    file.SetDirect(true);
    double started = SecondsSinceBoot();
    constexpr size_t kPiece = size_t{16} << 20;
    for (size_t at = 0; at < kBytes; at += kPiece) {
      file.Write(bytes.subspan(at, kPiece), static_cast<int64_t>(at));
    }
    file.Sync();
    const double mb_per_s = kBytes / (SecondsSinceBoot() - started) * 1e-6;
    constexpr int kSyncs = 10;
    started = SecondsSinceBoot();
    for (int i = 0; i < kSyncs; ++i) {
      file.Write(bytes.first(OutputFile::kDirectAlignment), 0);
      file.Sync();
    }
    const double sync_ms = (SecondsSinceBoot() - started) / kSyncs * 1e3;
    finding.figure =
        fmt::format("{:.0f} MB/s, a small write is safe after {:.1f} ms, {:.1f} GiB free", mb_per_s,
                    sync_ms, free_gib);
    finding.value = mb_per_s;
    finding.unit = "MB/s";
    constexpr double kSlow = 100;      // MB/s
    constexpr double kSlowSync = 100;  // ms
    constexpr double kLittle = 2;      // GiB
    if (mb_per_s < kSlow || sync_ms > kSlowSync) {
      finding.state = State::kWarn;
      finding.advice = "checkpoints will take long: put runs on a faster disk";
    } else if (free_gib < kLittle) {
      finding.state = State::kWarn;
      finding.advice = "a few checkpoints will fill it: free some space, or name another --folder";
    }
  } catch (const Error& error) {
    finding.state = State::kFail;
    finding.figure = error.what();
  }
  return finding;
}

// Checks whether this rank's machine sees a file that rank 0 writes to `folder`. Returns nothing if rank 0 cannot write
// the file, because CheckDisk() reports that. Every rank must call this function.
std::optional<Finding> CheckSharedDisk(const std::string& folder, Communicator& host) {
  const int64_t token = FromRankZero(getpid(), "a file's name", host);
  const std::string path = fmt::format("{}/.lockstep-doctor-shared-{}", folder, token);
  std::optional<OutputFile> file;
  try {
    if (host.rank() == 0) {
      file.emplace(path, kWriting);
      file->Sync();
    }
  } catch (const Error&) {
    file.reset();
  }
  const bool is_there = host.rank() == 0 && file.has_value();
  if (!OnAnyRank(is_there, "rank 0's file", host)) return std::nullopt;
  const bool sees = access(path.c_str(), F_OK) == 0;
  host.Barrier(host.MakeLabel("rank 0's file was seen"));
  if (host.rank() == 0) unlink(path.c_str());
  return Finding{
      .check = "shared disk",
      .state = sees ? State::kOk : State::kFail,
      .figure = sees ? fmt::format("{} is one folder on all machines", folder)
                     : fmt::format("{}: {} does not see rank 0's files", folder, HostName()),
      .advice = sees ? "" : "put runs and data on a disk that all machines share"};
}

// Checks that this machine's clock differs from rank 0's clock by at most 2 s, and that this machine's clock is not
// before the time at which this program's file was written. Every rank must call this function.
Finding CheckClock(Communicator& host) {
  host.Barrier(host.MakeLabel("clocks"));
  const double now = UnixSeconds();
  const double behind = GatherValues(now, "clocks", host)[0] - now;
  Finding finding{.check = "clock"};
  struct stat program {};
  constexpr double kMuch = 2;  // seconds
  if (std::abs(behind) > kMuch) {
    finding.state = State::kWarn;
    finding.figure =
        fmt::format("{:.1f} s {} rank 0's", std::abs(behind), behind > 0 ? "behind" : "before");
    finding.advice = "run chronyd or ntpd on all machines: --stop-at and file times go by it";
  } else if (stat("/proc/self/exe", &program) == 0 && now < static_cast<double>(program.st_mtime)) {
    finding.state = State::kWarn;
    finding.figure = "before the day this program was built";
    finding.advice = "set it: --stop-at and file times go by it";
  } else {
    finding.figure = host.world_size() == 1 ? "later than this program" : "within 2 s of rank 0's";
  }
  return finding;
}

// Returns a finding that lists the network interfaces that are up, for example "eth0, ib0". The finding is kFail if
// there are none.
Finding CheckNetwork() {
  std::set<std::string> names;
  for (const Interface& interface : InterfacesHere()) names.insert(interface.name);
  return {.check = "network",
          .state = names.empty() ? State::kFail : State::kOk,
          .figure = names.empty() ? "no interface is up"
                                  : fmt::format("interfaces: {}", fmt::join(names, ", ")),
          .advice = names.empty() ? "see ip link" : ""};
}

// Times all-reduces of all ranks, and checks the sums and the bandwidth. `links_gbs` is the bandwidth of the links
// between the ranks, in GB/s; 0: unknown. Every rank must call this function.
Finding CheckAllReduce(const World& world, double links_gbs) {
  const bool gpus = world.device.is_cuda();
  const CollectiveBench bench{.warmup = 3, .iterations = 10};
  const CollectiveTiming small = Time(bench, 8, world.communicator, world.device);
  const CollectiveTiming large =
      Time(bench, int64_t{gpus ? 256 : 4} << 20, world.communicator, world.device);
  Finding finding{.check = "all-reduce",
                  .figure = fmt::format("{} MiB at {:.3g} GB/s bus bandwidth, 8 bytes in {:.0f} us",
                                        large.bytes >> 20, large.busbw_gbs, small.time_us),
                  .value = large.busbw_gbs,
                  .unit = "GB/s"};
  if (small.wrong + large.wrong > 0) {
    finding.state = State::kFail;
    finding.figure = fmt::format("{} sums are wrong", small.wrong + large.wrong);
    finding.advice =
        "the hardware or its drivers are broken: leave out machines until they are right";
    return finding;
  }
  // On healthy machines the bus bandwidth is 0.6 to 0.75 times `links_gbs`. A bandwidth of less than 0.4 times
  // `links_gbs` leads to a warning.
  constexpr double kLeast = 0.4;
  if (StateOf(large.busbw_gbs, links_gbs, kLeast) == State::kWarn) {
    finding.state = State::kWarn;
    finding.figure += fmt::format(", where links carry {:.0f}", links_gbs);
    finding.advice = "NCCL_DEBUG=INFO says which way it goes; are NCCL_ variables set (env)?";
  }
  return finding;
}

// Returns the findings of each rank, in the order of the ranks. Every rank must call this function.
std::vector<std::vector<Finding>> Gather(const std::vector<Finding>& own, Communicator& host) {
  std::vector<std::vector<Finding>> ranks;
  for (const std::string& text : GatherTexts(ToText(own), "findings", host)) {
    ranks.push_back(FromText(text));
  }
  return ranks;
}

// Makes all checks. Rank 0 prints the report. Returns kUsage if a check failed on any rank, and otherwise kDone. Every
// rank must call this function. Throws Error.
ExitStatus RunDoctor(const DoctorOptions& options, Job& job) {
  Communicator& host = job.host();
  std::vector<Finding> findings;
  std::optional<World> world;
  try {
    world.emplace(job.Connect(options.device));
  } catch (const Error& error) {
    if (!error.on_every_rank()) throw;
    findings.push_back({.check = "ranks", .state = State::kFail, .figure = error.what()});
  }
  findings.push_back(CheckLibraries());
  findings.push_back(CheckRuntime());
  const bool first_here = job.local_rank() == 0;
  if (first_here && world) findings.push_back(CheckDriver(options));
  if (first_here) {
    const std::vector<DriverGpu> gpus = GpusOfDriver();
    const bool has_usable = world && world->device.is_cuda();
    std::ranges::move(UnusableGpus(gpus, kPciDevices, has_usable), std::back_inserter(findings));
  }
  double links_gbs = 0;
  bool is_broken = false;
  const bool one_machine = MachinesOf(job.places()) <= 1;
  if (world && world->device.is_cuda()) {
    const std::optional<GpuCondition> condition = ReadCondition(UuidOf(world->device.index()));
    const GpuCondition* const known = condition ? &*condition : nullptr;
    findings.push_back(CheckGpu(world->device, known));
    try {
      const std::vector<Finding> transfers = CheckTransfers(world->device, known);
      findings.insert(findings.end(), transfers.begin(), transfers.end());
      const bool to_gpu = one_machine && transfers.back().check == kGpuToGpu;
      if (to_gpu) links_gbs = std::max(LinkGbs(known), transfers.back().value);
    } catch (const std::exception& exception) {
      is_broken = true;
      findings.push_back({.check = "gpu memory",
                          .state = State::kFail,
                          .figure = FirstLine(WhatOf(exception)),
                          .advice = "end what else uses the GPU (nvidia-smi), or leave it out"});
    }
  }
  if (host.rank() == 0) findings.push_back(CheckMpi(job, host.world_size()));
  // If a rank's GPU fails, no all-reduce is made, because the other ranks would wait for that rank.
  const bool all_compute = world && !OnAnyRank(is_broken, "a GPU that fails", host);
  if (all_compute && world->size() > 1) findings.push_back(CheckAllReduce(*world, links_gbs));
  if (world) findings.push_back(CheckCores(job, *world));
  findings.push_back(CheckMemory(job));
  findings.push_back(CheckOpenFiles());
  if (first_here) {
    findings.push_back(CheckSharedMemory(job.local_ranks()));
    findings.push_back(CheckDisk(options.folder));
  }
  if (!one_machine) {
    if (const auto finding = CheckSharedDisk(options.folder, host)) findings.push_back(*finding);
    if (first_here) findings.push_back(CheckNetwork());
  }
  findings.push_back(CheckClock(host));

  const std::vector<std::vector<Finding>> ranks = Gather(findings, host);
  if (host.rank() == 0) {
    Print("{}", options.json ? JsonReport(ranks) : Report(ranks));
  }
  return WorstOf(ranks) == State::kFail ? ExitStatus::kUsage : ExitStatus::kDone;
}

class DoctorCommand final : public RankCommand {
 public:
  explicit DoctorCommand(CLI::App& app)
      : RankCommand(app, "doctor", "whether this machine, or with -n each rank, has all it needs") {
    options().Add("--folder", examined_.folder, "where runs will be").ShowDefault();
    options().Add("--json", examined_.json, "a line of JSON for each finding of each rank");
    AddDevice(options(), examined_.device);
  }

 private:
  ExitStatus RunAsRank(Job& job, const Invocation&) override { return RunDoctor(examined_, job); }

  DoctorOptions examined_;
};

}  // namespace

std::unique_ptr<Command> NewDoctorCommand(CLI::App& app) {
  return std::make_unique<DoctorCommand>(app);
}

}  // namespace lockstep
