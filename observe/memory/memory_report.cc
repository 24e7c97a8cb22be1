#include "observe/memory/memory_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

void SortByBytes(std::vector<MemoryPart>& parts) {
  std::ranges::stable_sort(parts, std::ranges::greater(), &MemoryPart::bytes);
}

int64_t& BytesOf(OwnerBytes& owners, MemoryOwner owner) {
  return owners[static_cast<size_t>(owner)];
}

// Returns the report with empty lists `phases` and `blocks`.
MemoryReport ReportOf(const OwnerBytes& owners, int64_t peak_bytes, const MemoryFacts& facts) {
  MemoryReport report{.step = facts.step,
                      .on_gpu = facts.on_gpu,
                      .peak_bytes = peak_bytes,
                      .reserved_bytes = facts.reserved_bytes,
                      .device_bytes = facts.device_bytes};
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] > 0) {
      report.owners.push_back({std::string(NameOf(static_cast<MemoryOwner>(i))), owners[i]});
    }
  }
  SortByBytes(report.owners);
  return report;
}

}  // namespace

MemoryReport ReportOf(const MemoryTally& tally, const std::vector<std::string_view>& phases,
                      const MemoryFacts& facts) {
  OwnerBytes owners = tally.OwnersAtPeak();
  const int64_t in_pools = facts.captured ? tally.NewAtPeak() : 0;
  const int64_t of_graphs = std::max<int64_t>(0, facts.pool_bytes - in_pools);
  BytesOf(owners, MemoryOwner::kGraphs) = of_graphs;
  const int64_t peak = facts.on_gpu ? facts.allocated_peak : tally.peak_bytes();
  MemoryReport report = ReportOf(owners, peak + of_graphs, facts);
  for (size_t i = 0; i < phases.size(); ++i) {
    report.phases.push_back({std::string(phases[i]), tally.phase_peaks()[i]});
  }
  for (const auto& [module, bytes] : tally.ModulesAtPeak()) {
    report.blocks.push_back({module, bytes});
  }
  SortByBytes(report.blocks);
  return report;
}

MemoryReport ReportOfEvaluation(const MemoryTally& tally, const MemoryFacts& facts) {
  OwnerBytes owners = tally.OwnersAtPeak();
  BytesOf(owners, MemoryOwner::kGraphs) = facts.pool_bytes;
  BytesOf(owners, MemoryOwner::kEvaluation) = facts.allocated_peak - tally.peak_bytes();
  const int64_t peak = facts.allocated_peak + facts.pool_bytes;
  MemoryReport report = ReportOf(owners, peak, facts);
  report.phases.push_back({std::string(NameOf(MemoryOwner::kEvaluation)), peak});
  return report;
}

std::string BytesText(int64_t bytes) {
  constexpr double kKibi = 1 << 10;
  const auto in = [&](double unit) { return static_cast<double>(bytes) / unit; };
  const double mebibytes = in(kKibi * kKibi);
  if (mebibytes >= kKibi) return fmt::format("{:.1f} GiB", mebibytes / kKibi);
  if (mebibytes >= 1) return fmt::format("{:.0f} MiB", mebibytes);
  return fmt::format("{:.0f} KiB", in(kKibi));
}

std::string TextOf(const MemoryReport& report) {
  constexpr size_t kMostOwners = 4;
  std::string text = fmt::format("memory{}: at most {}", report.is_foretold ? " foretold" : "",
                                 BytesText(report.peak_bytes));
  if (report.foretold_bytes >= 0) {
    text += fmt::format(" (foretold: {})", BytesText(report.foretold_bytes));
  }
  if (report.device_bytes > 0) text += fmt::format(" of {}", BytesText(report.device_bytes));
  const auto most = std::ranges::max_element(report.phases, {}, &MemoryPart::bytes);
  if (most != report.phases.end()) text += fmt::format(", in {}", most->name);
  for (size_t i = 0; i < std::min(kMostOwners, report.owners.size()); ++i) {
    const MemoryPart& owner = report.owners[i];
    text += fmt::format("{} {} {}", i == 0 ? ":" : ",", owner.name, BytesText(owner.bytes));
    if (owner.name == NameOf(MemoryOwner::kActivations) && !report.blocks.empty()) {
      text += fmt::format(" (most in {}: {})", report.blocks[0].name,
                          BytesText(report.blocks[0].bytes));
    }
  }
  return text;
}

}  // namespace lockstep
