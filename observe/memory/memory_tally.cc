#include "observe/memory/memory_tally.h"

#include <algorithm>

namespace lockstep {

void MemoryTally::Begin() {
  *this = MemoryTally(phases_);
  phase_peaks_.assign(phases_, 0);
}

void MemoryTally::Hold(const void* address, int64_t bytes, MemoryOwner owner) {
  if (bytes <= 0 || blocks_.contains(address)) return;
  const size_t label = IndexOf(phases_, owner, "");
  Add(label, bytes);
  blocks_[address] = {label, bytes, additions_};
  held_ += bytes;
}

void MemoryTally::Correct(int64_t total) {
  const size_t other = IndexOf(phases_, MemoryOwner::kOther, "");
  if (total > total_) Add(other, total - total_);
  if (total < total_) Remove(other, total_ - total);
}

void MemoryTally::Enter(size_t phase) {
  phase_ = phase;
  phase_peaks_[phase_] = std::max(phase_peaks_[phase_], total_);
}

void MemoryTally::Allocate(const void* address, int64_t bytes, MemoryOwner owner,
                           std::string_view module) {
  if (const auto stale = blocks_.find(address); stale != blocks_.end()) {
    Remove(stale->second.label, stale->second.bytes);
  }
  const size_t label = IndexOf(phase_, owner, module);
  Add(label, bytes);
  blocks_[address] = {label, bytes, additions_};
}

void MemoryTally::Free(const void* address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  Remove(found->second.label, found->second.bytes);
  blocks_.erase(found);
}

void MemoryTally::Own(const void* address, MemoryOwner owner) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  Block& block = found->second;
  const auto [phase, old_owner, module] = labels_[block.label];
  if (phase == phases_) return;
  const size_t label = IndexOf(phase, owner, module);
  const auto move = [&](std::vector<int64_t>& bytes) {
    bytes.resize(labels_.size());
    bytes[block.label] -= block.bytes;
    bytes[label] += block.bytes;
  };
  move(now_);
  if (!at_peak_ && block.born <= peak_at_) move(then_);
  block.label = label;
}

size_t MemoryTally::IndexOf(size_t phase, MemoryOwner owner, std::string_view module) {
  Label label(phase, owner, std::string(module));
  const auto [found, is_new] = index_.try_emplace(label, labels_.size());
  if (is_new) {
    labels_.push_back(std::move(label));
    now_.push_back(0);
  }
  return found->second;
}

void MemoryTally::Add(size_t label, int64_t bytes) {
  now_[label] += bytes;
  total_ += bytes;
  ++additions_;
  if (total_ >= peak_) {
    peak_ = total_;
    peak_at_ = additions_;
    at_peak_ = true;
  }
  if (!phase_peaks_.empty()) phase_peaks_[phase_] = std::max(phase_peaks_[phase_], total_);
}

void MemoryTally::Remove(size_t label, int64_t bytes) {
  if (at_peak_) then_ = now_;
  at_peak_ = false;
  now_[label] -= bytes;
  total_ -= bytes;
}

MemoryOwner MemoryTally::OwnerOf(const Label& label) const {
  const auto& [phase, owner, module] = label;
  if (owner != MemoryOwner::kUnknown) return owner;
  if (phase == phases_) return MemoryOwner::kOther;
  return phase == kForwardPhase || !module.empty() ? MemoryOwner::kActivations
                                                   : MemoryOwner::kTemporaries;
}

OwnerBytes MemoryTally::OwnersAtPeak() const {
  OwnerBytes owners{};
  const std::vector<int64_t>& bytes = AtPeak();
  for (size_t i = 0; i < bytes.size(); ++i) {
    owners[static_cast<size_t>(OwnerOf(labels_[i]))] += bytes[i];
  }
  return owners;
}

std::map<std::string, int64_t> MemoryTally::ModulesAtPeak() const {
  std::map<std::string, int64_t> modules;
  const std::vector<int64_t>& bytes = AtPeak();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string& module = std::get<2>(labels_[i]);
    if (module.empty() || bytes[i] == 0) continue;
    if (OwnerOf(labels_[i]) == MemoryOwner::kActivations) modules[module] += bytes[i];
  }
  return modules;
}

int64_t MemoryTally::NewAtPeak() const {
  int64_t sum = 0;
  const std::vector<int64_t>& bytes = AtPeak();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto& [phase, owner, module] = labels_[i];
    if (phase != phases_ && owner != MemoryOwner::kSamples) sum += bytes[i];
  }
  return sum;
}

std::vector<KeptMemory> MemoryTally::Kept() const {
  std::vector<KeptMemory> kept;
  for (size_t i = 0; i < labels_.size(); ++i) {
    const auto& [phase, owner, module] = labels_[i];
    if (phase != phases_ && now_[i] > 0) kept.push_back({phase, module, owner, now_[i]});
  }
  std::ranges::stable_sort(kept, std::ranges::greater(), &KeptMemory::bytes);
  return kept;
}

}  // namespace lockstep
