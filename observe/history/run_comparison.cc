#include "observe/history/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "base/best_so_far.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

using Series = std::map<int64_t, double>;  // by step

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void AddNames(const std::vector<LoggedMetrics>& lines, std::vector<std::string>& names) {
  for (const LoggedMetrics& line : lines) {
    for (const auto& [name, value] : line.values) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
}

Series SeriesOf(const LoggedRun& run, std::string_view name) {
  Series series;
  for (const auto* lines : {&run.epochs, &run.evaluations}) {
    for (const LoggedMetrics& line : *lines) {
      const auto entry =
          std::ranges::find(line.values, name, &std::pair<std::string, double>::first);
      // The value may be NaN, for example if the run diverges.
      if (entry != line.values.end()) series[line.step] = entry->second;
    }
  }
  return series;
}

// Returns the mean of the finite losses of the steps after `before` up to and including `last`; NaN if there are no
// such losses.
double MeanLoss(const std::vector<LoggedStep>& steps, int64_t before, int64_t last) {
  double sum = 0;
  int64_t count = 0;
  for (auto line = std::ranges::upper_bound(steps, before, {}, &LoggedStep::step);
       line != steps.end() && line->step <= last; ++line) {
    if (!std::isfinite(line->loss)) continue;
    sum += line->loss;
    ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : kNan;
}

MetricComparison Compare(const std::string& name, const std::vector<Series>& runs,
                         size_t most_steps) {
  MetricComparison compared{.name = name};
  for (auto entry = runs.front().rbegin();
       entry != runs.front().rend() && compared.steps.size() < most_steps; ++entry) {
    const int64_t step = entry->first;
    if (!std::ranges::all_of(runs, [&](const Series& run) { return run.contains(step); })) continue;
    compared.steps.insert(compared.steps.begin(), step);
    std::vector<double> values;
    for (const Series& run : runs) values.push_back(run.at(step));
    compared.at_step.insert(compared.at_step.begin(), std::move(values));
  }
  for (const Series& run : runs) {
    compared.last.push_back(run.empty() ? kNan : run.rbegin()->second);
    compared.last_step.push_back(run.empty() ? 0 : run.rbegin()->first);
    BestSoFar best(GreaterFigureIsBetter(name));
    int64_t best_step = 0;
    for (const auto& [step, value] : run) {
      if (best.Add(value)) best_step = step;
    }
    compared.best.push_back(best.value().value_or(kNan));
    compared.best_step.push_back(best_step);
  }
  return compared;
}

}  // namespace

std::vector<FieldDifference> ConfigDifferences(const std::vector<const RunHistory*>& runs) {
  std::vector<config::Config> configs;
  for (const RunHistory* run : runs) {
    if (!run->config()) return {};
    config::Config& config = configs.emplace_back(*run->config());
    config.clear_run_dir();
    config.mutable_data()->mutable_csv()->clear_column();
  }
  return DifferingFields(configs);
}

MetricComparison CompareLosses(const std::vector<const RunHistory*>& runs, int64_t windows) {
  MetricComparison compared{.name = "loss"};
  int64_t common = std::numeric_limits<int64_t>::max();
  for (const RunHistory* run : runs) {
    const std::vector<LoggedStep>& steps = run->log().steps;
    common = std::min(common, steps.empty() ? 0 : steps.back().step);
    compared.last.push_back(steps.empty() ? kNan : steps.back().loss);
    compared.last_step.push_back(steps.empty() ? 0 : steps.back().step);
    compared.best.push_back(kNan);
    compared.best_step.push_back(0);
  }
  windows = std::min(windows, common);
  int64_t before = 0;
  for (int64_t window = 1; window <= windows; ++window) {
    const int64_t last = common / windows * window + common % windows * window / windows;
    std::vector<double> means;
    for (const RunHistory* run : runs) means.push_back(MeanLoss(run->log().steps, before, last));
    compared.steps.push_back(last);
    compared.at_step.push_back(std::move(means));
    before = last;
  }
  return compared;
}

std::vector<MetricComparison> CompareMetrics(const std::vector<const RunHistory*>& runs,
                                             size_t most_steps) {
  std::vector<std::string> names;
  for (const RunHistory* run : runs) AddNames(run->log().epochs, names);
  for (const RunHistory* run : runs) AddNames(run->log().evaluations, names);
  std::vector<MetricComparison> comparisons;
  for (const std::string& name : names) {
    std::vector<Series> series;
    series.reserve(runs.size());
    for (const RunHistory* run : runs) series.push_back(SeriesOf(run->log(), name));
    comparisons.push_back(Compare(name, series, most_steps));
  }
  return comparisons;
}

}  // namespace lockstep
