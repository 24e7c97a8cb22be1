#include "observe/memory_watch.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;
namespace profiler = torch::profiler::impl;

// Whether a scope's name is that of a module, and not of a phase of the step or of a part of one.
bool IsModule(std::string_view name) {
  constexpr std::string_view kOther[] = {"read", "copy"};
  constexpr std::string_view kBegins[] = {"bucket ", "graph ", "ProfilerStep#"};
  return std::ranges::none_of(kPhases, [&](Phase phase) { return name == NameOf(phase); }) &&
         std::ranges::find(kOther, name) == std::end(kOther) &&
         std::ranges::none_of(kBegins, [&](auto begin) { return name.starts_with(begin); });
}

// What the CUDA allocator rounds sizes up to.
constexpr int64_t kBlockBytes = 512;

int64_t RoundedUp(int64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes; }

c10::CachingAllocator::Stat AllocatedStat(at::Device device) {
  using Kind = c10::CachingAllocator::StatType;
  return allocator::getDeviceStats(device.index())
      .allocated_bytes[static_cast<size_t>(Kind::AGGREGATE)];
}

// cuBLAS's, which ATen keeps for each stream.
void HoldWorkspaces(MemoryTally& tally) {
  const auto hold = [&](at::cuda::WorkspaceMapWithMutex& workspaces, size_t bytes) {
    const std::shared_lock lock(workspaces.mutex);
    for (const auto& [stream, memory] : workspaces.map) {
      tally.Hold(memory.get(), RoundedUp(static_cast<int64_t>(bytes)), MemoryOwner::kWorkspaces);
    }
  };
  hold(at::cuda::cublas_handle_stream_to_workspace(), at::cuda::getChosenWorkspaceSize());
  hold(at::cuda::cublaslt_handle_stream_to_workspace(), at::cuda::getCUDABlasLtWorkspaceSize());
}

// LibTorch's CPU allocator warns of each block that was allocated before the watch began.
class QuietAllocator {
 public:
  explicit QuietAllocator(bool is_cpu) : before_(FLAGS_caffe2_log_level) {
    if (is_cpu) FLAGS_caffe2_log_level = std::max<int>(before_, c10::GLOG_ERROR);
  }
  ~QuietAllocator() { FLAGS_caffe2_log_level = before_; }
  QuietAllocator(const QuietAllocator&) = delete;
  QuietAllocator& operator=(const QuietAllocator&) = delete;

 private:
  int before_;
};

}  // namespace

// It is what LibTorch takes for a profiler that is off, because other code expects a profiler's object there.
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

  // The CPU's allocator reports only if it is asked to; the CUDA allocator always does.
  bool memoryProfilingEnabled() const override { return device_.is_cpu(); }

  void reportMemoryUsage(void* address, int64_t bytes, size_t /*total_allocated*/,
                         size_t /*total_reserved*/, c10::Device device) override {
    if (device.type() != device_.type() || address == nullptr) return;
    if (device.is_cuda() && device.index() != device_.index()) return;
    const std::scoped_lock lock(mutex_);
    if (!watches_) return;
    if (bytes >= 0) {
      tally_.Allocate(address, bytes, MemoryScope::Now(), ModuleScope::Now(IsModule));
    } else if (device.is_cuda()) {
      tally_.Free(address, -bytes);
    } else {
      // It may take this memory for other that it saw earlier at the same address.
      tally_.Free(address);
    }
  }

  void Enter(Phase phase) {
    const std::scoped_lock lock(mutex_);
    if (watches_) tally_.Enter(static_cast<size_t>(phase));
  }

  void SetWatches(bool watches) {
    const std::scoped_lock lock(mutex_);
    watches_ = watches;
  }

  // Only while it does not watch.
  MemoryTally& tally() { return tally_; }

 private:
  at::Device device_;
  std::mutex mutex_;  // backward passes have threads of their own
  bool watches_ = false;
  MemoryTally tally_{kPhases.size()};
};

MemoryWatch::MemoryWatch(at::Device device)
    : device_(device), reporter_(std::make_shared<Reporter>(device)) {}

MemoryWatch::~MemoryWatch() = default;

bool MemoryWatch::During(const std::vector<OwnedTensor>& held, const std::function<void()>& act) {
  using c10::DebugInfoKind;
  if (c10::ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE) != nullptr) {
    act();
    return false;
  }
  if (device_.is_cuda()) {
    most_ = Most();
    allocator::resetPeakStats(device_.index());
  }
  Hold(held);
  class Watching {
   public:
    explicit Watching(const std::shared_ptr<Reporter>& reporter)
        : reporter_(reporter), guard_(DebugInfoKind::PROFILER_STATE, reporter) {
      reporter_->SetWatches(true);
    }
    // Objects that outlive the step may keep the reporter.
    ~Watching() { reporter_->SetWatches(false); }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

   private:
    std::shared_ptr<Reporter> reporter_;
    c10::DebugInfoGuard guard_;
  };
  {
    const QuietAllocator quiet(device_.is_cpu());
    const Watching watching(reporter_);
    act();
  }
  peak_ = ReadPeak();
  return true;
}

void MemoryWatch::Hold(const std::vector<OwnedTensor>& held) {
  MemoryTally& tally = reporter_->tally();
  tally.Begin();
  tally.Enter(static_cast<size_t>(Phase::kRest));
  elsewhere_ = 0;
  for (const auto& [owner, tensor] : held) {
    if (!tensor.defined() || tensor.device().type() != device_.type()) continue;
    const at::DataPtr& memory = tensor.storage().data_ptr();
    if (memory.get() == nullptr) continue;
    const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
    const int64_t before = tally.held_bytes();
    tally.Hold(memory.get(), device_.is_cuda() ? RoundedUp(bytes) : bytes, owner);
    const bool is_elsewhere =
        device_.is_cuda() && memory.get_deleter() != allocator::get()->raw_deleter();
    if (is_elsewhere) elsewhere_ += tally.held_bytes() - before;
  }
  if (!device_.is_cuda()) return;
  HoldWorkspaces(tally);
  const int64_t allocated = AllocatedStat(device_).current;
  tally.HoldOther(std::max<int64_t>(0, allocated - (tally.held_bytes() - elsewhere_)));
}

void MemoryWatch::Mark(Phase phase) { reporter_->Enter(phase); }

const MemoryTally& MemoryWatch::tally() const { return reporter_->tally(); }

int64_t MemoryWatch::Most() const { return std::max(most_, ReadPeak()); }

int64_t MemoryWatch::ReadPeak() const {
  return device_.is_cuda() ? AllocatedStat(device_).peak : 0;
}

}  // namespace lockstep
