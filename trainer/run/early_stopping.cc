#include "trainer/run/early_stopping.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "observe/metric_order.h"

namespace lockstep {

EarlyStopping::EarlyStopping(const config::EarlyStopping& config)
    : config_(config), kept_(at::zeros({3}, at::kDouble)) {}

void EarlyStopping::OnEvaluation(const std::vector<Metric>& metrics, int64_t epoch) {
  const auto metric = std::ranges::find(metrics, config_.metric(), &Metric::name);
  if (metric == metrics.end()) return;
  const double value = metric->value;
  const double gain = GreaterIsBetter(config_.metric()) ? value - best() : best() - value;
  // What is no number is never better.
  if (best_epoch() == 0 ? !std::isnan(value) : gain > config_.min_delta()) {
    Set(value, epoch, 0);
  } else {
    Set(best(), best_epoch(), without_improvement() + 1);
  }
}

bool EarlyStopping::is_over() const {
  return !config_.metric().empty() && without_improvement() >= config_.patience();
}

std::string EarlyStopping::why() const {
  if (!is_over()) return {};
  const int64_t since = without_improvement();
  if (best_epoch() == 0) {
    return fmt::format("{} was no number in {} evaluations", config_.metric(), since);
  }
  const std::string by =
      config_.min_delta() > 0 ? fmt::format(" by more than {}", config_.min_delta()) : "";
  return fmt::format("{} has not become better{} since epoch {} ({:.4f}), in {} evaluation{}",
                     config_.metric(), by, best_epoch(), best(), since, since == 1 ? "" : "s");
}

void EarlyStopping::AddTo(StateTree& state) {
  state.Add("kept", kept_, /*if_missing=*/[] {});
}

double EarlyStopping::best() const { return kept_[0].item<double>(); }
int64_t EarlyStopping::best_epoch() const { return kept_[1].item<int64_t>(); }
int64_t EarlyStopping::without_improvement() const { return kept_[2].item<int64_t>(); }

void EarlyStopping::Set(double best, int64_t best_epoch, int64_t without_improvement) {
  kept_[0] = best;
  kept_[1] = best_epoch;
  kept_[2] = without_improvement;
}

}  // namespace lockstep
