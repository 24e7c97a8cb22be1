#include "launch/cli/runs/profile_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/say.h"
#include "launch/cli/command/table.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRows = 10;
constexpr size_t kNameWidth = 60;

std::string ChangeText(double before, double after) {
  if (before <= 0) return "new";
  if (after <= 0) return "gone";
  return fmt::format("{:+.1f} %", 100 * (after / before - 1));
}

TableRow RowOf(const std::string& name, const std::string& phase, double before, double after) {
  return {ShortName(name, kNameWidth),
          phase,
          fmt::format("{:.4f}", before),
          fmt::format("{:.4f}", after),
          fmt::format("{:+.4f}", after - before),
          ChangeText(before, after)};
}

}  // namespace

void PrintProfileComparison(const RunProfile& before, const RunProfile& after, bool json) {
  const RankProfile& old_rank = before.ranks.front();
  const RankProfile& new_rank = after.ranks.front();
  std::vector<KernelChange> changes = ChangesOf(old_rank, new_rank);
  if (json) {
    Json line{{"step_ms", {old_rank.step_ms, new_rank.step_ms}}, {"kernels", Json::array()}};
    for (const KernelChange& change : changes) {
      line["kernels"].push_back({{"name", change.name},
                                 {"phase", change.phase},
                                 {"before_ms", change.before_ms},
                                 {"after_ms", change.after_ms}});
    }
    Print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  std::vector<TableRow> rows{{"ms a step", "phase", "before", "after", "change", ""},
                             RowOf("step", "", old_rank.step_ms, new_rank.step_ms)};
  std::ranges::stable_sort(changes, std::greater(), [](const KernelChange& change) {
    return std::abs(change.after_ms - change.before_ms);
  });
  for (size_t i = 0; i < std::min(kRows, changes.size()); ++i) {
    const KernelChange& change = changes[i];
    rows.push_back(RowOf(change.name, change.phase, change.before_ms, change.after_ms));
  }
  Print("{}", TableText(rows));
}

}  // namespace lockstep
