#include "launch/cli/runs/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/live_line.h"
#include "launch/cli/command/table.h"
#include "observe/history/log_fields.h"
#include "observe/machine/machine_reading.h"
#include "observe/machine/machine_text.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostCharacters = 110;
constexpr int kBarColumns = 20;
constexpr double kPercent = 100;

// Sets `value` to the number in the field `name` of `line`, if the field exists and is a number.
template <typename Number>
void Take(const Json& line, const char* name, std::optional<Number>& value) {
  const auto found = line.find(name);
  if (found != line.end() && found->is_number()) value = found->get<Number>();
}

// Returns the strings of the list in the field `name` of `line`, with commas between them; an empty string if there is
// no such list.
std::string WordsIn(const Json& line, const char* name) {
  const auto found = line.find(name);
  std::string words;
  if (found == line.end() || !found->is_array()) return words;
  for (const Json& word : *found) {
    if (word.is_string()) words += (words.empty() ? "" : ", ") + word.get<std::string>();
  }
  return words;
}

// Returns the objects of the list in the field `name` of `line`; none if there is no such list.
std::vector<Json> ObjectsIn(const Json& line, const char* name) {
  std::vector<Json> objects;
  const auto found = line.find(name);
  if (found == line.end() || !found->is_array()) return objects;
  std::ranges::copy_if(*found, std::back_inserter(objects),
                       [](const Json& item) { return item.is_object(); });
  return objects;
}

// Returns the figures that the table shows in one row. They are read from `line`, a logged reading of the machine.
MachineReading ReadingOf(const Json& line) {
  MachineReading reading;
  std::optional<int64_t> used;
  std::optional<int64_t> total;
  Take(line, "memory_used_bytes", used);
  Take(line, "memory_total_bytes", total);
  reading.host_reading.cpu_use = NumberIn(line, "cpu_use", 0);
  reading.host_reading.memory_used = used.value_or(0);
  reading.host_reading.memory_total = total.value_or(0);
  for (const Json& gpu : ObjectsIn(line, "gpus")) {
    GpuReading& one = reading.gpus.emplace_back();
    Take(gpu, "use", one.use);
    Take(gpu, "memory_used_bytes", one.memory_used);
    Take(gpu, "memory_total_bytes", one.memory_total);
    Take(gpu, "power_w", one.power_w);
    Take(gpu, "temperature_c", one.temperature_c);
  }
  return reading;
}

class View {
 public:
  View(const RunHistory& run, double now) : run_(run), log_(run.log()), now_(now) {}

  std::string Text() {
    AddState();
    AddProgress();
    AddTraining();
    AddValidation();
    AddSeconds();
    AddMachine();
    for (const std::string& warning : log_.last_warnings) Add("warning", warning);
    if (log_.bad_lines > 0) {
      Add("log", fmt::format("{} of its lines cannot be read", log_.bad_lines));
    }
    return TableText(rows_);
  }

 private:
  void Add(const std::string& name, const std::string& text) {
    rows_.push_back({name, Shortened(text, kMostCharacters)});
  }

  void AddState() {
    std::string state(NameOf(run_.state()));
    if (!log_.why.empty()) state += ": " + log_.why;
    Add("run", run_.run_dir());
    Add("state", state);
    if (log_.start.is_object()) {
      const auto ranks = static_cast<int64_t>(NumberIn(log_.start, "world_size", 1));
      Add("ranks", fmt::format("{} on {}, version {}", ranks, TextIn(log_.start, "device"),
                               TextIn(log_.start, "version")));
    }
    if (!run_.why_no_log().empty()) {
      Add("log", "cannot be read: " + run_.why_no_log());
      return;
    }
    const double since = std::max(0.0, now_ - run_.last_time());
    if (run_.start_time()) {
      Add("log",
          fmt::format("began {} ago, last line {} ago",
                      DurationText(std::max(0.0, now_ - *run_.start_time())), DurationText(since)));
    } else {
      Add("log", fmt::format("last line {} ago", DurationText(since)));
    }
  }

  void AddProgress() {
    if (log_.epoch > 0) {
      Add("epoch", run_.epochs() > 0 ? fmt::format("{} of {}", log_.epoch, run_.epochs())
                                     : fmt::format("{}", log_.epoch));
    }
    if (run_.steps() <= 0) {
      Add("step", fmt::format("{}", log_.step));
      return;
    }
    const double share =
        std::min(1.0, static_cast<double>(log_.step) / static_cast<double>(run_.steps()));
    const auto full = static_cast<int>(std::floor(share * kBarColumns));
    std::string text = fmt::format("{} of {}  [{:#<{}}{:.<{}}] {:.0f} %", log_.step, run_.steps(),
                                   "", full, "", kBarColumns - full, std::floor(kPercent * share));
    if (run_.state() == RunState::kTraining && log_.last_step && log_.last_step->left_s >= 0) {
      text += fmt::format("  {} left", DurationText(log_.last_step->left_s));
    }
    Add("step", text);
  }

  void AddTraining() {
    if (log_.last_step) {
      std::string text = FigureText(log_.last_step->loss);
      if (!log_.epochs.empty()) {
        const LoggedMetrics& epoch = log_.epochs.back();
        text += fmt::format("  mean of epoch {}: {}", epoch.epoch,
                            FigureText(epoch.ValueOf("train_loss")));
      }
      if (!std::isnan(log_.last_step->lr)) {
        text += fmt::format("  lr {}", FigureText(log_.last_step->lr));
      }
      Add("loss", text);
    }
    if (run_.samples_per_s() >= 0) {
      Add("speed", fmt::format("{:.0f} samples/s", run_.samples_per_s()));
    }
  }

  void AddValidation() {
    if (log_.evaluations.empty()) return;
    const LoggedMetrics& last = log_.evaluations.back();
    std::string text = fmt::format("step {}:", last.step);
    for (const auto& [name, value] : last.values) {
      if (!IsBriefFigure(name)) continue;
      text += fmt::format("  {} {}", name, FigureText(value));
    }
    Add("validation", text);
    if (const std::optional<BestValue> best = run_.best()) {
      Add("best",
          fmt::format("{} {} at step {}", best->metric, FigureText(best->value), best->step));
    }
  }

  // Adds rows from the log's last `seconds` line, which says how the job spent its time: the verdict, the findings, and
  // the lost seconds by their cause, the greatest loss first.
  void AddSeconds() {
    if (!log_.seconds.is_object()) return;
    if (!run_.verdict().empty()) {
      Add("verdict", run_.verdict());
      Add("remedy", run_.remedy());
    }
    for (const Json& finding : ObjectsIn(log_.seconds, "findings")) {
      Add("finding", TextIn(finding, "words"));
      Add("remedy", TextIn(finding, "remedy"));
    }
    AddShares();
    const double wall_s = NumberIn(log_.seconds, "wall_s", 0);
    const auto lost = log_.seconds.find("lost_s");
    if (wall_s <= 0 || lost == log_.seconds.end() || !lost->is_object()) return;
    std::vector<std::pair<double, std::string>> losses;
    for (const auto& [name, seconds] : lost->items()) {
      if (seconds.is_number()) losses.emplace_back(seconds.get<double>(), name);
    }
    std::ranges::stable_sort(losses,
                             [](const auto& a, const auto& b) { return a.first > b.first; });
    AddSecondsOf("seconds", "the steps at this run's best speed",
                 NumberIn(log_.seconds, "ideal_s", 0), wall_s);
    for (const auto& [seconds, name] : losses) {
      constexpr double kLeastShare = 0.005;  // a smaller share would be shown as 0 %
      if (seconds >= kLeastShare * wall_s) AddSecondsOf("", "lost to " + name, seconds, wall_s);
    }
  }

  void AddShares() {
    std::string text;
    const auto add = [&](const char* name, const char* words, double factor) {
      const double value = factor * NumberIn(log_.seconds, name, -1);
      if (value >= 0) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", FigureText(value), words);
      }
    };
    add("busy_share", "% of the time kernels run", kPercent);
    add("flops_share", "% of the peak FLOP/s", kPercent);
    add("joules_per_sample", "J a sample", 1);
    if (!text.empty()) Add("GPU", text);
  }

  void AddSecondsOf(const std::string& row, const std::string& what, double seconds,
                    double wall_s) {
    Add(row, fmt::format("{:9.2f} s  {:3.0f} %  {}", seconds, kPercent * seconds / wall_s, what));
  }

  void AddMachine() {
    if (!log_.machine.is_object()) return;
    Add("machine",
        fmt::format("{}  {}", TextIn(log_.machine, "host"), LiveText(ReadingOf(log_.machine))));
    for (const Json& gpu : ObjectsIn(log_.machine, "gpus")) {
      const std::string name = fmt::format("GPU {}", NumberIn(gpu, "index", 0));
      const std::string reasons = WordsIn(gpu, "throttled_by");
      if (!reasons.empty()) Add(name, "clocks kept down by: " + reasons);
      if (const double xid = NumberIn(gpu, "xid_error", 0); xid != 0) {
        Add(name, fmt::format("XID error {}", xid));
      }
    }
  }

  const RunHistory& run_;
  const LoggedRun& log_;
  double now_;
  std::vector<TableRow> rows_;
};

std::string EpochText(const RunHistory& run) {
  if (run.log().epoch <= 0) return "-";
  return run.epochs() > 0 ? fmt::format("{}/{}", run.log().epoch, run.epochs())
                          : fmt::format("{}", run.log().epoch);
}

std::string StepText(int64_t step, int64_t steps) {
  return steps > 0 ? fmt::format("{}/{}", step, steps) : fmt::format("{}", step);
}

TableRow FoldRow(const TrainingHistory& training, size_t fold) {
  const RunHistory& run = training.runs().at(fold);
  const std::optional<BestValue> best = run.best();
  const std::optional<LoggedStep>& last = run.log().last_step;
  const bool trains = run.state() == RunState::kTraining && last && last->left_s >= 0;
  return {
      fmt::format("{}", fold),
      training.FoldState(fold),
      EpochText(run),
      StepText(run.log().step, run.steps()),
      last ? FigureText(last->loss) : "-",
      best ? fmt::format("{} {} at {}", best->metric, FigureText(best->value), best->step) : "-",
      run.samples_per_s() >= 0 ? fmt::format("{:.0f}", run.samples_per_s()) : "-",
      trains ? DurationText(last->left_s) : "-"};
}

std::string FoldsView(const TrainingHistory& training, double now) {
  std::vector<TableRow> rows;
  const auto add = [&](const std::string& name, const std::string& text) {
    rows.push_back({name, Shortened(text, kMostCharacters)});
  };
  const std::string why = training.why();
  const auto done = std::ranges::count_if(
      training.runs(), [](const RunHistory& run) { return run.state() == RunState::kDone; });
  add("run", training.folder());
  add("state", fmt::format("{}{}{}", NameOf(training.state()), why.empty() ? "" : ": ", why));
  add("folds", fmt::format("{} of {} done", done, training.runs().size()));
  if (training.start_time()) {
    add("logs", fmt::format("began {} ago, last line {} ago",
                            DurationText(std::max(0.0, now - *training.start_time())),
                            DurationText(std::max(0.0, now - training.last_time()))));
  }
  add("step", StepText(training.step(), training.steps()));
  if (const std::optional<BestSpread> best = training.best()) {
    add("best", fmt::format("{} {}, the mean of {} fold{}", best->metric,
                            SpreadText(best->value.mean, best->value.deviation), best->value.count,
                            best->value.count == 1 ? "" : "s"));
  }
  if (!training.verdict().empty()) {
    add("verdict", training.verdict());
    add("remedy", training.remedy());
  }
  std::vector<TableRow> folds{
      {"fold", "state", "epoch", "step", "loss", "best metric", "samples/s", "left"}};
  for (size_t fold = 0; fold < training.runs().size(); ++fold) {
    folds.push_back(FoldRow(training, fold));
  }
  return TableText(rows) + TableText(folds);
}

}  // namespace

std::string TrainingView(const TrainingHistory& training, double now) {
  return training.has_folds() ? FoldsView(training, now)
                              : View(training.runs().front(), now).Text();
}

}  // namespace lockstep
