#include "trainer/run/memory_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/memory_scope.h"
#include "comm/together.h"

namespace lockstep {
namespace {

// Returns the part of a step that allocated `kept`, for example "the forward pass of blocks.3.attention".
std::string PlaceOf(const KeptMemory& kept) {
  const std::string of = kept.module.empty() ? "" : " of " + kept.module;
  switch (kPhases[kept.phase]) {
    case Phase::kForward:
      return "the forward pass" + of;
    case Phase::kBackward:
      return "the backward pass" + of;
    case Phase::kExchange:
      return "the exchange with other ranks";
    case Phase::kUpdate:
      return "the update";
    case Phase::kRest:
      break;
  }
  return "the step outside its passes";
}

std::vector<OwnedTensor> HeldTensors(Step& step, const Input& input,
                                     const std::vector<NamedTensor>& snapshots) {
  std::vector<OwnedTensor> held = step.HeldTensors();
  for (const at::Tensor& slot : input.feed.DeviceMemories()) {
    held.push_back({MemoryOwner::kSamples, slot});
  }
  for (const NamedTensor& copy : snapshots) {
    held.push_back({MemoryOwner::kCheckpoint, copy.tensor});
  }
  return held;
}

}  // namespace

MemoryAccount::MemoryAccount(const config::Config& config, const World& world, RunEvents& events)
    : config_(config), world_(world), events_(events) {
  if (config.observe().memory_snapshot() && is_gpu_ && is_told_) history_.emplace();
}

bool MemoryAccount::Watch(int64_t number, Step& step, const Input& input,
                          const std::vector<NamedTensor>& snapshots,
                          const std::function<bool()>& run) {
  number_ = number;
  if (!std::exchange(begun_, true)) Begin();
  if (!is_told_) return run();
  if (failures_) failures_->Take();
  TakeErrors();
  ++steps_;
  MemoryWatch& watch = step.memory();
  bool fits = false;
  if (!IsDue()) {
    fits = run();
  } else {
    const bool watched =
        watch.During([&] { return HeldTensors(step, input, snapshots); }, [&] { fits = run(); });
    if (fits && watched) OnWatched(step);
  }
  if (!fits) {
    BeginAnew();
  } else if (is_gpu_ && steps_ % kReadEvery == 0) {
    ReadDevice(watch);
  }
  return fits;
}

void MemoryAccount::Begin() {
  if (config_.observe().memory_snapshot() && !history_) {
    events_.Emit(RunWarning{fmt::format(
        "observe.memory_snapshot: there is none {}",
        is_gpu_ ? "with PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync, which keeps no history"
                : "on CPUs, whose allocator keeps no history")});
  }
  if (foretold_) events_.Emit(*foretold_);
  if (is_gpu_ && is_told_) failures_.emplace(world_.device, [this] { OnFailure(); });
}

// Forgets the last report and the prediction, so that a new report follows. Call it after a step that did not fit in
// memory, because the following steps then have smaller micro-batches, or other memory was released.
void MemoryAccount::BeginAnew() {
  steps_ = 0;
  first_.reset();
  foretold_.reset();
  reported_ = false;
  reported_peak_ = 0;
  rose_ = false;
}

bool MemoryAccount::IsDue() const {
  constexpr uint64_t kFirstPower = 16;
  const auto steps = static_cast<uint64_t>(steps_);
  return !reported_ || rose_ || (steps >= kFirstPower && std::has_single_bit(steps));
}

MemoryFacts MemoryAccount::FactsAt(int64_t step) const {
  MemoryFacts facts{.step = step, .on_gpu = is_gpu_};
  if (!is_gpu_) return facts;
  const DeviceMemory memory = ReadDeviceMemory(world_.device);
  facts.reserved_bytes = memory.reserved_bytes;
  facts.device_bytes = TotalDeviceBytes(world_.device);
  facts.pool_bytes = memory.pool_bytes;
  return facts;
}

void MemoryAccount::OnWatched(Step& step) {
  MemoryWatch& watch = step.memory();
  if (steps_ > kSettledSteps) {
    kept_ = {};
    kept_.is_known = true;
    for (const KeptMemory& kept : watch.tally().Kept()) {
      // Memory that has an owner, such as the optimizer's moments, stays allocated on purpose, so it does not count.
      if (kept.owner != MemoryOwner::kUnknown) continue;
      if (kept_.bytes == 0) kept_.place = PlaceOf(kept);
      kept_.bytes += kept.bytes;
    }
    // Memory that only replaces freed memory does not count, so the kept bytes are limited to the growth over the step.
    kept_.bytes = std::clamp<int64_t>(watch.Growth(), 0, kept_.bytes);
    if (reported_ && !rose_) return;
  }
  MemoryFacts facts = FactsAt(number_);
  facts.allocated_peak = watch.peak() + watch.elsewhere();
  facts.captured = step.has_captured();
  MemoryReport report = ReportOf(watch.tally(), PhaseNames(), facts);
  pool_bytes_ = facts.pool_bytes;
  if (rose_) {
    rose_ = false;
    // If this step's peak is not higher than the reported one, work outside of steps and evaluations caused the rise,
    // such as the writing of a checkpoint.
    if (IsMore(report.peak_bytes)) Report(std::move(report));
    watch.ForgetMost();
    return;
  }
  if (steps_ < kSettledSteps) {
    first_ = std::move(report);
    return;
  }
  reported_peak_ = report.peak_bytes;
  if (first_ && IsMore(first_->peak_bytes)) {
    first_->reserved_bytes = report.reserved_bytes;
    report = std::move(*first_);
  }
  first_.reset();
  Report(std::move(report));
  watch.ForgetMost();
  WriteSnapshot(fmt::format("step-{}", number_.load()));
}

void MemoryAccount::Report(MemoryReport report) {
  reported_ = true;
  reported_peak_ = report.peak_bytes;
  if (foretold_) report.foretold_bytes = foretold_->peak_bytes;
  events_.Emit(std::move(report));
}

bool MemoryAccount::IsMore(int64_t peak_bytes) const {
  return static_cast<double>(peak_bytes) > (1 + kTolerance) * static_cast<double>(reported_peak_);
}

void MemoryAccount::WatchEvaluation(int64_t steps, Step& step, const Input& input,
                                    const std::vector<NamedTensor>& snapshots,
                                    const std::function<void()>& evaluate) {
  MemoryWatch& watch = step.memory();
  if (!is_gpu_ || !reported_) {
    evaluate();
    watch.ForgetMost();
    return;
  }
  const int64_t before = watch.Most();
  const int64_t peak = watch.PeakDuring(evaluate);
  MemoryFacts facts = FactsAt(steps);
  // In an evaluation, memory is taken by the tensors that steps keep, by the pools of CUDA graphs, and by the
  // evaluation's own tensors.
  if (IsMore(peak + watch.elsewhere() + facts.pool_bytes) &&
      watch.During([&] { return HeldTensors(step, input, snapshots); }, [] {})) {
    facts.allocated_peak = peak + watch.elsewhere();
    Report(ReportOfEvaluation(watch.tally(), facts));
  }
  watch.ForgetMost();
  rose_ = rose_ || IsMore(before + watch.elsewhere() + pool_bytes_);
}

void MemoryAccount::ReadDevice(const MemoryWatch& watch) {
  device_.Add(number_, AllocatedBytes(world_.device));
  rose_ = reported_ && IsMore(watch.Most() + watch.elsewhere() + pool_bytes_);
}

void MemoryAccount::End() {
  if (first_ && !reported_) events_.Emit(*first_);
  if (history_) history_->Wait();
  TakeErrors();
}

void MemoryAccount::TakeErrors() {
  if (!history_) return;
  for (const std::string& error : history_->TakeErrors()) events_.Emit(RunWarning{error});
}

// Writes a memory snapshot after an allocation has failed, but at most one for each step, because a step may fail
// several times with ever smaller micro-batches. May be called on any thread.
void MemoryAccount::OnFailure() {
  const int64_t step = number_;
  if (failed_in_.exchange(step) != step) WriteSnapshot(fmt::format("failed-step-{}", step));
}

void MemoryAccount::WriteSnapshot(const std::string& name) {
  if (!history_) return;
  history_->Write(
      fmt::format("{}/memory/{}-rank-{}.pickle", config_.run_dir(), name, world_.rank()));
}

std::optional<FailedAllocation> MemoryAccount::Failure(const Step& step) {
  AllocationFailure own;
  // An allocation that failed outside of the step, such as in a loader's thread, did not make the step fail.
  if (failures_ && step.lacked_memory()) own = failures_->Take().value_or(own);
  const std::vector<AllocationFailure> ranks =
      GatherValues(own, "which allocation failed", world_.host);
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (ranks[rank].requested_bytes > 0) {
      return FailedAllocation{ranks[rank], rank, world_.size() == 1};
    }
  }
  return std::nullopt;
}

void EndForMemory(int64_t step, int64_t micro_batch,
                  const std::optional<FailedAllocation>& failed) {
  throw OutOfMemoryError(
      micro_batch,
      fmt::format("step {}: out of memory with micro-batches of {} sample{}: {}{}", step,
                  micro_batch, micro_batch == 1 ? "" : "s", kLessMemory, EndOfLine(failed)));
}

MemoryGrowth MemoryAccount::Growth() const {
  MemoryGrowth growth{.on_gpu = is_gpu_, .kept = kept_};
  if (!is_gpu_) return growth;
  growth.device_bytes = device_.BytesPerStep();
  if (growth.device_bytes > 0) {
    growth.device_steps_left =
        static_cast<double>(FreeDeviceBytes(world_.device)) / growth.device_bytes;
  }
  return growth;
}

}  // namespace lockstep
