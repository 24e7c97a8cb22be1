#include "observe/history/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "base/best_so_far.h"
#include "observe/history/training_history.h"
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

// The values of one metric of a training.
struct Values {
  std::vector<Series> folds;  // one for each run that has the metric
  Series mean;                // the mean over the folds
};

// Returns the means of the folds' first values, of their second values, and so on.
Series MeanOf(const std::vector<Series>& folds) {
  Series mean;
  if (folds.empty()) return mean;
  std::vector<Series::const_iterator> at;
  for (const Series& fold : folds) at.push_back(fold.begin());
  while (true) {
    int64_t steps = 0;
    double sum = 0;
    for (size_t i = 0; i < folds.size(); ++i) {
      if (at[i] == folds[i].end()) return mean;
      steps += at[i]->first;
      sum += at[i]->second;
      ++at[i];
    }
    const auto count = std::ssize(folds);
    mean[(steps + count / 2) / count] = sum / static_cast<double>(count);
  }
}

Values ValuesOf(const ComparedRuns& runs, const std::string& name) {
  Values values;
  for (const RunHistory* run : runs) {
    Series series = SeriesOf(run->log(), name);
    if (!series.empty()) values.folds.push_back(std::move(series));
  }
  values.mean = MeanOf(values.folds);
  return values;
}

std::pair<int64_t, double> BestOf(const std::string& name, const Series& series) {
  BestSoFar best(GreaterFigureIsBetter(name));
  int64_t best_step = 0;
  for (const auto& [step, value] : series) {
    if (best.Add(value)) best_step = step;
  }
  return {best_step, best.value().value_or(kNan)};
}

void AddSpread(const Spread& spread, std::vector<double>& means, std::vector<double>& deviations) {
  means.push_back(spread.mean);
  deviations.push_back(spread.deviation);
}

MetricComparison Compare(const std::string& name, const std::vector<Values>& trainings,
                         size_t most_steps) {
  MetricComparison compared{.name = name};
  const Series& first = trainings.front().mean;
  for (auto entry = first.rbegin(); entry != first.rend() && compared.steps.size() < most_steps;
       ++entry) {
    const int64_t step = entry->first;
    const auto has = [&](const Values& values) { return values.mean.contains(step); };
    if (!std::ranges::all_of(trainings, has)) continue;
    compared.steps.insert(compared.steps.begin(), step);
    std::vector<double> values;
    for (const Values& training : trainings) values.push_back(training.mean.at(step));
    compared.at_step.insert(compared.at_step.begin(), std::move(values));
  }
  for (const Values& training : trainings) {
    std::vector<double> last;
    std::vector<double> best;
    int64_t last_step = 0;
    int64_t best_step = 0;
    for (const Series& fold : training.folds) {
      last.push_back(fold.rbegin()->second);
      last_step = std::max(last_step, fold.rbegin()->first);
      const auto [step, value] = BestOf(name, fold);
      best.push_back(value);
      best_step = training.folds.size() == 1 ? step : 0;
    }
    // A run's last value may be NaN, for example if the run diverges. The mean of the folds is then NaN, too.
    const bool has_nan = std::ranges::any_of(last, [](double value) { return std::isnan(value); });
    AddSpread(has_nan ? Spread{.mean = kNan, .deviation = kNan} : SpreadOf(last), compared.last,
              compared.last_deviation);
    compared.last_step.push_back(last_step);
    AddSpread(SpreadOf(best), compared.best, compared.best_deviation);
    compared.best_step.push_back(best_step);
  }
  return compared;
}

}  // namespace

std::vector<FieldDifference> ConfigDifferences(const std::vector<ComparedRuns>& trainings) {
  std::vector<config::Config> configs;
  const bool have_folds =
      std::ranges::any_of(trainings, [](const ComparedRuns& runs) { return runs.size() > 1; });
  for (const ComparedRuns& runs : trainings) {
    const auto run =
        std::ranges::find_if(runs, [](const RunHistory* one) { return one->config().has_value(); });
    if (run == runs.end()) return {};
    config::Config& config = configs.emplace_back(*(*run)->config());
    config.clear_run_dir();
    config.mutable_data()->mutable_csv()->clear_column();
    if (have_folds) config.mutable_data()->mutable_folds()->clear_fold();
  }
  return DifferingFields(configs);
}

MetricComparison CompareLosses(const std::vector<ComparedRuns>& trainings, int64_t windows) {
  MetricComparison compared{.name = "loss"};
  int64_t common = std::numeric_limits<int64_t>::max();
  // The runs of each training that have step lines.
  std::vector<std::vector<const std::vector<LoggedStep>*>> logged;
  for (const ComparedRuns& runs : trainings) {
    auto& of_training = logged.emplace_back();
    std::vector<double> last;
    int64_t last_step = 0;
    for (const RunHistory* run : runs) {
      const std::vector<LoggedStep>& steps = run->log().steps;
      if (steps.empty()) continue;
      of_training.push_back(&steps);
      common = std::min(common, steps.back().step);
      last.push_back(steps.back().loss);
      last_step = std::max(last_step, steps.back().step);
    }
    if (of_training.empty()) common = 0;
    AddSpread(SpreadOf(last), compared.last, compared.last_deviation);
    compared.last_step.push_back(last_step);
    AddSpread({.mean = kNan, .deviation = kNan}, compared.best, compared.best_deviation);
    compared.best_step.push_back(0);
  }
  windows = std::min(windows, common);
  int64_t before = 0;
  for (int64_t window = 1; window <= windows; ++window) {
    const int64_t last = common / windows * window + common % windows * window / windows;
    std::vector<double> means;
    for (const auto& of_training : logged) {
      std::vector<double> of_runs;
      for (const auto* steps : of_training) of_runs.push_back(MeanLoss(*steps, before, last));
      means.push_back(SpreadOf(of_runs).mean);
    }
    compared.steps.push_back(last);
    compared.at_step.push_back(std::move(means));
    before = last;
  }
  return compared;
}

std::vector<MetricComparison> CompareMetrics(const std::vector<ComparedRuns>& trainings,
                                             size_t most_steps) {
  std::vector<std::string> names;
  for (const ComparedRuns& runs : trainings) {
    for (const RunHistory* run : runs) AddNames(run->log().epochs, names);
  }
  for (const ComparedRuns& runs : trainings) {
    for (const RunHistory* run : runs) AddNames(run->log().evaluations, names);
  }
  std::vector<MetricComparison> comparisons;
  for (const std::string& name : names) {
    std::vector<Values> values;
    values.reserve(trainings.size());
    for (const ComparedRuns& runs : trainings) values.push_back(ValuesOf(runs, name));
    comparisons.push_back(Compare(name, values, most_steps));
  }
  return comparisons;
}

}  // namespace lockstep
