#include "trainer/run/memory_account.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/memory_scope.h"
#include "comm/together.h"

namespace lockstep {
namespace {

static_assert(std::is_trivially_copyable_v<AllocationFailure>);

// Where a step allocates memory that it keeps: "the forward pass of blocks.3.attention", "the backward pass".
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

}  // namespace

MemoryAccount::MemoryAccount(const config::Config& config, const World& world, RunEvents& events)
    : config_(config), world_(world), events_(events) {}

bool MemoryAccount::Watch(int64_t number, const Holders& holders,
                          const std::function<bool()>& run) {
  if (!holders.checkpointing) return run();
  number_ = number;
  if (!std::exchange(begun_, true)) Begin();
  if (failures_) failures_->Take();
  ++steps_;
  bool fits = false;
  if (!IsDue()) {
    fits = run();
  } else {
    MemoryWatch& watch = holders.step.memory();
    const int64_t pool_bytes = is_gpu_ ? ReadDeviceMemory(world_.device).pool_bytes : 0;
    const bool watched = watch.During(HeldTensors(holders), [&] { fits = run(); });
    if (fits && watched) OnWatched(watch, pool_bytes);
  }
  if (!fits) {
    --steps_;
  } else if (is_gpu_ && steps_ % kReadEvery == 0) {
    ReadDevice(holders.step.memory());
  }
  return fits;
}

void MemoryAccount::Begin() {
  if (!is_gpu_) {
    if (config_.observe().memory_snapshot()) {
      events_.Emit(RunWarning{
          "observe.memory_snapshot: there is none on CPUs, whose allocator keeps no history"});
    }
    return;
  }
  if (config_.observe().memory_snapshot()) history_.emplace();
  failures_.emplace(world_.device,
                    [this] { WriteSnapshot(fmt::format("failed-step-{}", number_)); });
}

bool MemoryAccount::IsDue() const {
  constexpr uint64_t kFirstPower = 16;
  const auto steps = static_cast<uint64_t>(steps_);
  return !reported_ || rose_ || (steps >= kFirstPower && std::has_single_bit(steps));
}

void MemoryAccount::OnWatched(MemoryWatch& watch, int64_t pool_bytes_before) {
  const MemoryTally& tally = watch.tally();
  if (steps_ > kSettledSteps) {
    kept_ = {};
    kept_.is_known = true;
    for (const KeptMemory& kept : tally.Kept()) {
      // What has an owner is there to stay.
      if (kept.owner != MemoryOwner::kUnknown) continue;
      if (kept_.bytes == 0) kept_.place = PlaceOf(kept);
      kept_.bytes += kept.bytes;
    }
    if (reported_ && !rose_) return;
  }
  MemoryFacts facts{.step = number_, .on_gpu = is_gpu_};
  if (is_gpu_) {
    const DeviceMemory memory = ReadDeviceMemory(world_.device);
    facts.allocated_peak = watch.peak() + watch.elsewhere();
    facts.run_peak = reported_ ? watch.Most() + watch.elsewhere() : 0;
    facts.reserved_bytes = memory.reserved_bytes;
    facts.device_bytes = TotalDeviceBytes(world_.device);
    facts.pool_bytes = memory.pool_bytes;
    facts.captured = memory.pool_bytes > pool_bytes_before;
  }
  std::vector<std::string_view> phases;
  for (const Phase phase : kPhases) phases.push_back(NameOf(phase));
  MemoryReport report = ReportOf(tally, phases, facts);
  if (steps_ < kSettledSteps) {
    first_ = std::move(report);
    return;
  }
  rose_ = false;
  reported_ = true;
  reported_peak_ = watch.Most();
  const bool first_was_more =
      first_ && static_cast<double>(first_->peak_bytes) >
                    (1 + kPeakTolerance) * static_cast<double>(report.peak_bytes);
  if (first_was_more) {
    first_->reserved_bytes = report.reserved_bytes;
    report = std::move(*first_);
  }
  events_.Emit(report);
  first_.reset();
  WriteSnapshot(fmt::format("step-{}", number_));
}

void MemoryAccount::ReadDevice(const MemoryWatch& watch) {
  device_.Add(number_, AllocatedBytes(world_.device));
  rose_ = reported_ && static_cast<double>(watch.Most()) >
                           (1 + kPeakTolerance) * static_cast<double>(reported_peak_);
  if (!history_) return;
  for (const std::string& error : history_->TakeErrors()) events_.Emit(RunWarning{error});
}

void MemoryAccount::WriteSnapshot(const std::string& name) {
  if (!history_) return;
  history_->Write(
      fmt::format("{}/memory/{}-rank-{}.pickle", config_.run_dir(), name, world_.rank()));
}

std::vector<OwnedTensor> MemoryAccount::HeldTensors(const Holders& holders) {
  std::vector<OwnedTensor> held = holders.step.HeldTensors();
  for (const at::Tensor& slot : holders.input.feed.DeviceMemories()) {
    held.push_back({MemoryOwner::kSamples, slot});
  }
  for (const NamedTensor& copy : holders.checkpointing->memories()) {
    held.push_back({MemoryOwner::kCheckpoint, copy.tensor});
  }
  return held;
}

std::optional<FailedAllocation> MemoryAccount::Failure() {
  const AllocationFailure own =
      failures_ ? failures_->Take().value_or(AllocationFailure{}) : AllocationFailure{};
  const at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(own))}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &own, sizeof(own));
  const at::Tensor all = at::empty({world_.size() * bytes.numel()}, at::kByte);
  world_.host.AllGather(all, bytes, world_.host.MakeLabel("which allocation failed")).Wait();
  std::vector<AllocationFailure> ranks(static_cast<size_t>(world_.size()));
  std::memcpy(ranks.data(), all.const_data_ptr(), all.nbytes());
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (ranks[rank].requested_bytes > 0) {
      return FailedAllocation{ranks[rank], rank, world_.size() == 1};
    }
  }
  return std::nullopt;
}

void EndForMemory(int64_t step, int64_t micro_batch,
                  const std::optional<FailedAllocation>& failed) {
  throw Error::OnEveryRank(
      ExitStatus::kUsage,
      fmt::format("step {}: out of memory with micro-batches of {} sample{}: {}{}", step,
                  micro_batch, micro_batch == 1 ? "" : "s", kLessMemory, EndOfLine(failed)));
}

MemoryGrowth MemoryAccount::Growth() const {
  MemoryGrowth growth{.on_gpu = is_gpu_, .kept = kept_};
  if (!is_gpu_) return growth;
  growth.device_bytes = device_.BytesPerStep();
  const auto free =
      static_cast<double>(TotalDeviceBytes(world_.device) - AllocatedBytes(world_.device));
  if (growth.device_bytes > 0) growth.device_steps_left = std::max(0.0, free / growth.device_bytes);
  return growth;
}

}  // namespace lockstep
