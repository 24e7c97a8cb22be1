#include "observe/page/run_data.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "config/config_differences.h"
#include "observe/history/training_history.h"
#include "observe/page/columns.h"
#include "observe/page/rank_table.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostShares = 200;  // the maximum number of columns of `shares`

// Returns the number with six significant digits; null if the number is not finite.
Json Figure(double value) {
  if (!std::isfinite(value)) return nullptr;
  constexpr int kDigits = 6;
  if (value == 0) return 0;
  const double scale = std::pow(10, kDigits - 1 - std::floor(std::log10(std::abs(value))));
  // The scale is infinite for the smallest numbers, and zero for the greatest numbers. Such numbers are not rounded.
  if (!std::isfinite(scale) || scale == 0) return value;
  const double rounded = std::round(value * scale) / scale;
  constexpr double kMostExact = 1e15;
  if (rounded == std::floor(rounded) && std::abs(rounded) < kMostExact) {
    return static_cast<int64_t>(rounded);
  }
  return rounded;
}

Json Figures(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(Figure(value));
  return list;
}

// Returns a figure of a curve, or null if the figure has no finite value.
template <typename ValueOf>
Json FigureOf(const std::vector<Column>& columns, const ValueOf& value_of) {
  const Reduced reduced = Reduce(columns, value_of);
  if (std::ranges::all_of(reduced.mean, [](double mean) { return std::isnan(mean); })) {
    return nullptr;
  }
  Json figure{{"mean", Figures(reduced.mean)}};
  if (std::ranges::any_of(columns, [](const Column& c) { return c.end - c.begin > 1; })) {
    figure["least"] = Figures(reduced.least);
    figure["greatest"] = Figures(reduced.greatest);
  }
  return figure;
}

template <typename ValueOf>
void AddFigure(const char* name, const std::vector<Column>& columns, const ValueOf& value_of,
               Json& figures) {
  Json figure = FigureOf(columns, value_of);
  if (!figure.is_null()) figures[name] = std::move(figure);
}

// Returns the x of each column, which is the x of the column's last line.
template <typename XOf>
Json PlacesOf(const std::vector<Column>& columns, const XOf& x_of) {
  Json list = Json::array();
  for (const Column& column : columns) list.push_back(x_of(column.end - 1));
  return list;
}

// Returns the seconds, rounded to a hundredth; null if the number of seconds is not finite.
Json Seconds(double seconds) {
  constexpr double kHundredths = 100;
  if (!std::isfinite(seconds)) return nullptr;
  return std::round(seconds * kHundredths) / kHundredths;
}

Json CurvesOf(const LoggedRun& log, const std::vector<Column>& columns) {
  const std::vector<LoggedStep>& steps = log.steps;
  Json curves{
      {"step", PlacesOf(columns, [&](size_t i) { return steps[i].step; })},
      {"time", PlacesOf(columns, [&](size_t i) { return Seconds(log.TrainedAt(steps[i].time)); })},
      {"figures", Json::object()}};
  Json& figures = curves["figures"];
  AddFigure("loss", columns, [&](size_t i) { return steps[i].loss; }, figures);
  AddFigure("lr", columns, [&](size_t i) { return steps[i].lr; }, figures);
  AddFigure("grad_norm", columns, [&](size_t i) { return steps[i].grad_norm; }, figures);
  AddFigure("samples_per_s", columns, [&](size_t i) { return steps[i].samples_per_s; }, figures);
  AddFigure("data_wait", columns, [&](size_t i) { return steps[i].data_wait; }, figures);
  return curves;
}

Json CurvesOf(const LoggedRun& log, Column lines) {
  return CurvesOf(log, ColumnsOf(lines, kMostColumns,
                                 [&](size_t i) { return static_cast<double>(log.steps[i].step); }));
}

Json MetricsOf(const LoggedRun& log, const std::vector<LoggedMetrics>& lines) {
  const std::vector<Column> columns = ColumnsOf({0, lines.size()}, kMostColumns, [&](size_t i) {
    return static_cast<double>(lines[i].step);
  });
  std::vector<std::string> names;
  for (const LoggedMetrics& line : lines) {
    for (const auto& [name, value] : line.values) {
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
  }
  Json metrics{
      {"step", PlacesOf(columns, [&](size_t i) { return lines[i].step; })},
      {"time", PlacesOf(columns, [&](size_t i) { return Seconds(log.TrainedAt(lines[i].time)); })},
      {"figures", Json::object()}};
  for (const std::string& name : names) {
    AddFigure(
        name.c_str(), columns, [&](size_t i) { return lines[i].ValueOf(name); },
        metrics["figures"]);
  }
  return metrics;
}

// Returns the object's field `shares`. The seconds in a `seconds` line count from the beginning of the line's job. The
// shares of a column are computed from the difference between the column's last line and the last line of the previous
// column, or from the column's last line alone if a new job has begun between these two lines.
Json SharesOf(const LoggedRun& log) {
  std::vector<LoggedSeconds> lines;
  for (const LoggedSeconds& line : log.seconds_lines) {
    if (!std::isnan(log.TrainedAt(line.time)) && line.wall_s > 0) lines.push_back(line);
  }
  // The lines are not in the order of their times if a clock was set back.
  std::ranges::stable_sort(lines, {},
                           [&](const LoggedSeconds& line) { return log.TrainedAt(line.time); });
  const std::vector<Column> columns = ColumnsOf(
      {0, lines.size()}, kMostShares, [&](size_t i) { return log.TrainedAt(lines[i].time); });
  Json shares{
      {"time", PlacesOf(columns, [&](size_t i) { return Seconds(log.TrainedAt(lines[i].time)); })},
      {"ideal", Json::array()},
      {"lost", Json::object()}};
  for (const std::string& cause : log.causes) shares["lost"][cause] = Json::array();
  const LoggedSeconds nothing{};
  const LoggedSeconds* before = &nothing;
  for (const Column& column : columns) {
    const LoggedSeconds& now = lines[column.end - 1];
    if (now.wall_s <= before->wall_s) before = &nothing;
    const double wall_s = now.wall_s - before->wall_s;
    const auto share = [&](double after_s, double before_s) {
      return Figure(std::clamp((after_s - before_s) / wall_s, 0.0, 1.0));
    };
    const auto lost = [](const LoggedSeconds& line, size_t cause) {
      return cause < line.lost_s.size() ? static_cast<double>(line.lost_s[cause]) : 0;
    };
    shares["ideal"].push_back(share(now.ideal_s, before->ideal_s));
    for (size_t i = 0; i < log.causes.size(); ++i) {
      shares["lost"][log.causes[i]].push_back(share(lost(now, i), lost(*before, i)));
    }
    before = &now;
  }
  return shares;
}

Json ReadingsOf(const LoggedRun& log) {
  std::vector<const LoggedReading*> lines;
  std::vector<int> gpus;
  for (const LoggedReading& line : log.readings) {
    if (std::isnan(log.TrainedAt(line.time))) continue;
    lines.push_back(&line);
    for (const LoggedGpu& gpu : line.gpus) {
      if (std::ranges::find(gpus, gpu.index) == gpus.end()) gpus.push_back(gpu.index);
    }
  }
  std::ranges::stable_sort(lines, {},
                           [&](const LoggedReading* line) { return log.TrainedAt(line->time); });
  std::ranges::sort(gpus);
  const std::vector<Column> columns = ColumnsOf(
      {0, lines.size()}, kMostColumns, [&](size_t i) { return log.TrainedAt(lines[i]->time); });
  Json readings{
      {"time", PlacesOf(columns, [&](size_t i) { return Seconds(log.TrainedAt(lines[i]->time)); })},
      {"figures", Json::object()},
      {"gpus", Json::array()}};
  Json& host = readings["figures"];
  AddFigure("cpu_use", columns, [&](size_t i) { return lines[i]->cpu_use; }, host);
  AddFigure(
      "memory_used_bytes", columns, [&](size_t i) { return lines[i]->memory_used_bytes; }, host);
  AddFigure(
      "process_memory_bytes", columns, [&](size_t i) { return lines[i]->process_memory_bytes; },
      host);
  for (const int index : gpus) {
    Json figures = Json::object();
    const auto add = [&](const char* name, auto LoggedGpu::*field) {
      AddFigure(
          name, columns,
          [&](size_t i) -> double {
            const auto gpu = std::ranges::find(lines[i]->gpus, index, &LoggedGpu::index);
            return gpu == lines[i]->gpus.end() ? kNan : (*gpu).*field;
          },
          figures);
    };
    add("use", &LoggedGpu::use);
    add("memory_use", &LoggedGpu::memory_use);
    add("memory_used_bytes", &LoggedGpu::memory_used_bytes);
    add("power_w", &LoggedGpu::power_w);
    add("temperature_c", &LoggedGpu::temperature_c);
    add("sm_clock_mhz", &LoggedGpu::sm_clock_mhz);
    readings["gpus"].push_back({{"index", index}, {"figures", std::move(figures)}});
  }
  return readings;
}

Json VerdictsOf(const LoggedRun& log) {
  Json list = Json::array();
  for (const LoggedVerdict& verdict : log.verdicts) {
    list.push_back({{"time", Seconds(log.TrainedAt(verdict.time))},
                    {"step", verdict.step},
                    {"verdict", verdict.verdict},
                    {"remedy", verdict.remedy}});
  }
  return list;
}

Json NotFiniteOf(const std::vector<LoggedStep>& steps) {
  const auto is_finite = [](const LoggedStep& step) { return std::isfinite(step.loss); };
  const auto first = std::ranges::find_if_not(steps, is_finite);
  if (first == steps.end()) return nullptr;
  return {{"lines", std::ranges::count_if(first, steps.end(), std::not_fn(is_finite))},
          {"step", first->step}};
}

}  // namespace

RunData::RunData(const std::string& run_dir, int64_t id)
    : id_(id), history_(run_dir, RunLog::Keep::kAllSteps), profiles_(run_dir) {
  profiles_.Refresh();
  object_ = Object();
}

bool RunData::Refresh(int64_t version) {
  const bool has_log_changed = history_.Refresh();
  const bool has_profile_changed = profiles_.Refresh();
  // While a run trains, its flight records change all the time, and the state of a fold without a log is that of its
  // job, so the object is made again even if nothing else has changed.
  const bool may_change =
      history_.state() == RunState::kTraining || history_.state() == RunState::kNoLog;
  if (!has_log_changed && !has_profile_changed && !may_change) return false;
  Json object = Object();
  bool has_changed = false;
  for (const auto& [name, value] : object.items()) {
    if (value == object_.at(name)) continue;
    versions_[name] = version;
    has_changed = true;
  }
  object_ = std::move(object);
  return has_changed;
}

std::vector<std::string> RunData::Unreadable() const {
  std::vector<std::string> lines = history_.Unreadable();
  std::ranges::copy(profiles_.Unreadable(), std::back_inserter(lines));
  return lines;
}

Json RunData::Since(int64_t version) const {
  Json changed{{"id", id_}};
  for (const auto& [name, value] : object_.items()) {
    const auto found = versions_.find(name);
    if ((found == versions_.end() ? 0 : found->second) > version) changed[name] = value;
  }
  return changed.size() > 1 ? changed : Json();
}

Json RunData::Object() const {
  const LoggedRun& log = history_.log();
  const std::optional<BestValue> best = history_.best();
  const std::string state = StateInWords(history_);
  return {
      {"name", history_.run_dir()},
      {"state", state},
      {"why", log.why},
      {"start", log.start},
      {"step", log.step},
      {"steps", history_.steps()},
      {"epoch", log.epoch},
      {"epochs", history_.epochs()},
      {"left_s", log.last_step ? Figure(log.last_step->left_s) : Json()},
      {"samples_per_s", history_.samples_per_s() >= 0 ? Figure(history_.samples_per_s()) : Json()},
      {"trained_s", history_.trained_s() ? Seconds(*history_.trained_s()) : Json()},
      {"first_time", history_.start_time() ? Seconds(*history_.start_time()) : Json()},
      {"last_time", Seconds(history_.last_time())},
      {"best",
       best ? Json{{"metric", best->metric}, {"value", Figure(best->value)}, {"step", best->step}}
            : Json()},
      {"why_no_log", state == NameOf(history_.state()) ? history_.why_no_log() : ""},
      {"why_no_config", history_.config() ? "" : history_.why_no_config()},
      {"bad_lines", log.bad_lines},
      {"warnings", log.warnings},
      {"last_warnings", log.last_warnings},
      {"checkpoints", log.checkpoints.size()},
      {"starts", log.starts},
      {"steps_logged", log.steps.size()},
      {"not_finite", NotFiniteOf(log.steps)},
      {"curves", CurvesOf(log, {0, log.steps.size()})},
      {"epochs_done", MetricsOf(log, log.epochs)},
      {"evaluations", MetricsOf(log, log.evaluations)},
      {"seconds", log.seconds},
      {"shares", SharesOf(log)},
      {"verdicts", VerdictsOf(log)},
      {"machine", log.machine},
      {"readings", ReadingsOf(log)},
      {"memory", log.memory},
      {"profiles", profiles_.Json()},
      {"profiles_in_all", profiles_.count()},
      {"ranks", RanksJson(history_.run_dir())},
      {"config", history_.config() ? Json(FieldLines(*history_.config())) : Json::array()}};
}

Json RunData::CurvesWithin(CurveAxis axis, double from, double to) const {
  const LoggedRun& log = history_.log();
  const auto x_of = [&](size_t i) {
    const LoggedStep& step = log.steps[i];
    return axis == CurveAxis::kStep ? static_cast<double>(step.step) : log.TrainedAt(step.time);
  };
  // The x of a line without a time, which only older versions wrote, is NaN on the time axis. Both comparisons are then
  // false, so the part neither begins with such a line nor goes beyond it.
  size_t begin = 0;
  while (begin < log.steps.size() && !(x_of(begin) >= from)) ++begin;
  size_t end = begin;
  while (end < log.steps.size() && x_of(end) <= to) ++end;
  return CurvesOf(log, {begin, end});
}

}  // namespace lockstep
