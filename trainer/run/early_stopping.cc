#include "trainer/run/early_stopping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/best_so_far.h"
#include "observe/metric_order.h"

namespace lockstep {

void EarlyStopping::OnEvaluation(const std::vector<Metric>& metrics, int64_t epoch) {
  const auto metric = std::ranges::find(metrics, config_.metric(), &Metric::name);
  if (metric == metrics.end()) return;
  const double value = metric->value;
  const bool is_better = best_epoch_ == 0 ? !std::isnan(value)
                                          : Beats(value, best_, GreaterIsBetter(config_.metric()),
                                                  config_.min_delta());
  if (is_better) {
    best_ = value;
    best_epoch_ = epoch;
    without_improvement_ = 0;
  } else {
    ++without_improvement_;
  }
}

bool EarlyStopping::is_over() const {
  return !config_.metric().empty() && without_improvement_ >= config_.patience();
}

std::string EarlyStopping::why() const {
  if (!is_over()) return {};
  const int64_t since = without_improvement_;
  if (best_epoch_ == 0) {
    return fmt::format("{} was no number in {} evaluations", config_.metric(), since);
  }
  const std::string by =
      config_.min_delta() > 0 ? fmt::format(" by more than {}", config_.min_delta()) : "";
  return fmt::format("{} has not become better{} since epoch {} ({:.4f}), in {} evaluation{}",
                     config_.metric(), by, best_epoch_, best_, since, since == 1 ? "" : "s");
}

void EarlyStopping::BeginAnew() {
  best_ = 0;
  best_epoch_ = 0;
  without_improvement_ = 0;
}

void EarlyStopping::AddTo(StateTree& state) {
  // If a checkpoint lacks these entries, because an older version wrote it, the run continues as if there had been no
  // evaluation.
  const auto from_nothing = [] {};
  state.Add("best", best_, from_nothing);
  state.Add("best_epoch", best_epoch_, from_nothing);
  state.Add("without_improvement", without_improvement_, from_nothing);
}

}  // namespace lockstep
