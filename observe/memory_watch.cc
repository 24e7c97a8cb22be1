#include "observe/memory_watch.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "base/tensor/caching_allocator.h"
#include "base/tensor/foretold_gpu.h"
#include "base/tensor/libtorch_versions.h"

namespace lockstep {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
namespace profiler = torch::profiler::impl;

// Calls `act` with the address and the size in bytes of each cuBLAS workspace. ATen keeps a workspace for each pair of
// a cuBLAS handle and a stream.
void ForWorkspaces(const std::function<void(const void*, int64_t)>& act) {
  const auto for_all = [&](at::cuda::WorkspaceMapWithMutex& workspaces, size_t usual_bytes) {
    const std::shared_lock lock(workspaces.mutex);
    for (const auto& [stream, entry] : workspaces.map) {
      const auto [address, bytes] = WorkspaceOf(entry, usual_bytes);
      act(address, CachingAllocator::RoundedUp(static_cast<int64_t>(bytes)));
    }
  };
  for_all(at::cuda::cublas_handle_stream_to_workspace(), at::cuda::getChosenWorkspaceSize());
  for_all(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize());
}

// Suppresses the warning that LibTorch's CPU allocator logs when a block is freed that was allocated before the watch
// began. All other warnings that this thread raises are still printed.
class QuietAllocator final : public c10::WarningHandler {
 public:
  QuietAllocator() { FLAGS_caffe2_log_level = std::max<int>(level_, c10::GLOG_ERROR); }
  ~QuietAllocator() override { FLAGS_caffe2_log_level = level_; }
  QuietAllocator(const QuietAllocator&) = delete;
  QuietAllocator& operator=(const QuietAllocator&) = delete;

  void process(const c10::Warning& warning) override {
    const int quiet = std::exchange(FLAGS_caffe2_log_level, level_);
    others_->process(warning);
    FLAGS_caffe2_log_level = quiet;
  }

 private:
  int level_ = FLAGS_caffe2_log_level;
  c10::WarningHandler* others_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard handles_{this};
};

}  // namespace

// Receives LibTorch's reports of allocations, and counts them in a MemoryTally. The class derives from
// ProfilerStateBase, because LibTorch casts the object under DebugInfoKind::PROFILER_STATE to ProfilerStateBase.
// The object presents itself as a profiler that is off.
class MemoryWatch::Reporter final : public profiler::ProfilerStateBase {
 public:
  explicit Reporter(at::Device device)
      : ProfilerStateBase(profiler::ProfilerConfig(profiler::ProfilerState::Disabled)),
        device_(device) {
    tally_.Begin();
  }

  profiler::ActiveProfilerType profilerType() override {
    return profiler::ActiveProfilerType::NONE;
  }

  // Returns whether the CPU allocator reports its allocations. The CUDA allocator always reports its allocations.
  bool memoryProfilingEnabled() const override { return device_.is_cpu(); }

  void reportMemoryUsage(void* address, int64_t bytes, size_t total_allocated,
                         size_t /*total_reserved*/, c10::Device device) override {
    if (device.type() != device_.type() || address == nullptr) return;
    if (device.is_cuda() && device.index() != device_.index()) return;
    const std::scoped_lock lock(mutex_);
    if (!watches_) return;
    // The CPU allocator's total leaves out memory that was allocated while no object received reports, so only the CUDA
    // allocator's total is used.
    const auto correct = [&](int64_t before) {
      if (!device.is_cuda()) return;
      tally_.Correct(static_cast<int64_t>(total_allocated) - before + elsewhere_);
    };
    if (bytes >= 0) {
      correct(bytes);
      tally_.Allocate(address, bytes, MemoryScope::Now(), ModuleScope::Now());
    } else {
      tally_.Free(address);
      correct(0);
    }
  }

  void Enter(Phase phase) {
    const std::scoped_lock lock(mutex_);
    if (watches_) tally_.Enter(static_cast<size_t>(phase));
  }

  // Begins to count reports. `elsewhere` is the number of bytes of held tensors that LibTorch's allocator did not
  // allocate.
  void Begin(int64_t elsewhere) {
    const std::scoped_lock lock(mutex_);
    elsewhere_ = elsewhere;
    watches_ = true;
  }

  void End() {
    const std::scoped_lock lock(mutex_);
    watches_ = false;
  }

  // Returns the tally. Must not be called between Begin() and End(), because other threads then change the tally.
  MemoryTally& tally() { return tally_; }

 private:
  at::Device device_;
  // Protects the members below, because the training thread and the threads of a backward pass all report allocations.
  std::mutex mutex_;
  bool watches_ = false;
  int64_t elsewhere_ = 0;
  MemoryTally tally_{kPhases.size()};
};

MemoryWatch::MemoryWatch(at::Device device)
    : device_(device), reporter_(std::make_shared<Reporter>(device)) {}

MemoryWatch::~MemoryWatch() = default;

bool MemoryWatch::During(const Held& held, const std::function<void()>& act) {
  using c10::DebugInfoKind;
  if (c10::ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE) != nullptr ||
      (device_.is_cuda() && !TellsBlocks())) {
    act();
    return false;
  }
  ResetPeak();
  Hold(held());
  class Watching {
   public:
    Watching(const std::shared_ptr<Reporter>& reporter, int64_t elsewhere)
        : reporter_(reporter), guard_(DebugInfoKind::PROFILER_STATE, reporter) {
      reporter_->Begin(elsewhere);
    }
    // Stops the reporter, because objects that outlive the step may keep a pointer to the reporter.
    ~Watching() { reporter_->End(); }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    std::shared_ptr<Reporter> reporter_;
    c10::DebugInfoGuard guard_;
  };
  {
    std::optional<QuietAllocator> quiet;
    if (device_.is_cpu()) quiet.emplace();
    const Watching watching(reporter_, elsewhere_);
    act();
  }
  OwnWorkspaces();
  peak_ = ReadPeak();
  return true;
}

int64_t MemoryWatch::PeakDuring(const std::function<void()>& act) {
  ResetPeak();
  act();
  return ReadPeak();
}

void MemoryWatch::Hold(const std::vector<OwnedTensor>& held) {
  MemoryTally& tally = reporter_->tally();
  tally.Begin();
  tally.Enter(static_cast<size_t>(Phase::kRest));
  elsewhere_ = 0;
  for (const auto& [owner, tensor] : held) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    if (tensor.device().type() != device_.type()) continue;
    const at::DataPtr& memory = tensor.storage().data_ptr();
    if (memory.get() == nullptr) continue;
    const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
    const int64_t before = tally.held_bytes();
    tally.Hold(memory.get(), IsOnGpu(device_) ? CachingAllocator::RoundedUp(bytes) : bytes, owner);
    const bool is_elsewhere =
        device_.is_cuda() && memory.get_deleter() != allocator::get()->raw_deleter();
    if (is_elsewhere) elsewhere_ += tally.held_bytes() - before;
  }
  if (device_.is_cuda()) {
    ForWorkspaces([&](const void* address, int64_t bytes) {
      tally.Hold(address, bytes, MemoryOwner::kWorkspaces);
    });
    tally.Correct(AllocatedBytes(device_) + elsewhere_);
  }
  begun_bytes_ = tally.now_bytes();
}

// Makes kWorkspaces the owner of the workspaces that the step has allocated. Before this call a workspace counts as
// memory of the module that was running when the workspace was allocated.
void MemoryWatch::OwnWorkspaces() {
  if (!device_.is_cuda()) return;
  ForWorkspaces([&](const void* address, int64_t /*bytes*/) {
    reporter_->tally().Own(address, MemoryOwner::kWorkspaces);
  });
}

void MemoryWatch::Mark(Phase phase) { reporter_->Enter(phase); }

const MemoryTally& MemoryWatch::tally() const { return reporter_->tally(); }

int64_t MemoryWatch::Most() const { return std::max(most_, ReadPeak()); }

void MemoryWatch::ForgetMost() {
  ResetPeak();
  most_ = 0;
}

DevicePeak MemoryWatch::PeakOfDevice() const {
  if (!device_.is_cuda()) return {};
  DevicePeak peak{.peak_bytes = Most(), .device_bytes = TotalDeviceBytes(device_)};
  const int64_t pools = TellsBlocks() ? ReadDeviceMemory(device_).pool_bytes : 0;
  const int64_t allocated = AllocatedBytes(device_);
  // The pools' memory is not left for other tensors, because a CUDA graph's pool keeps its memory even while no tensor
  // uses this memory.
  peak.left_bytes =
      FreeDeviceBytes(device_) + allocated - std::max(peak.peak_bytes, allocated + pools);
  return peak;
}

void MemoryWatch::ResetPeak() {
  if (!device_.is_cuda()) return;
  most_ = Most();
  allocator::resetPeakStats(device_.index());
}

int64_t MemoryWatch::ReadPeak() const {
  if (!device_.is_cuda()) return 0;
  using Kind = c10::CachingAllocator::StatType;
  return allocator::getDeviceStats(device_.index())
      .allocated_bytes[static_cast<size_t>(Kind::AGGREGATE)]
      .peak;
}

}  // namespace lockstep
