#include "observe/history/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>

#include "base/files/open_file.h"
#include "observe/history/log_fields.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kMostLineBytes = size_t{16} << 20;
constexpr size_t kMostWarnings = 5;
constexpr size_t kMostVerdicts = 300;
constexpr size_t kMostCauses = 64;

// An exception that is thrown for a line whose fields have wrong types.
struct NoLogLine {};

// Returns the integer in the field `name`, or no value if there is no such field. Throws NoLogLine if the field is not
// an integer from 0 to 2^63 - 1.
std::optional<int64_t> CountIn(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    throw NoLogLine();
  }
  if (!found->is_number_integer() || found->get<int64_t>() < 0) throw NoLogLine();
  return found->get<int64_t>();
}

int64_t StepIn(const Json& line) {
  const std::optional<int64_t> step = CountIn(line, "step");
  if (!step) throw NoLogLine();
  return *step;
}

// Returns the metrics of an evaluation. Older versions wrote the names of kOldNames without "val_", such as "loss".
LoggedMetrics MetricsIn(const Json& line) {
  static constexpr std::array<std::string_view, 8> kOldNames{
      "loss", "accuracy", "top5", "f1", "auc", "rmse", "mae", "perplexity"};
  LoggedMetrics metrics{.step = StepIn(line),
                        .epoch = CountIn(line, "epoch").value_or(0),
                        .time = NumberIn(line, "time")};
  for (const auto& [name, value] : line.items()) {
    const bool is_old = std::ranges::find(kOldNames, name) != kOldNames.end();
    if (!is_old && !name.starts_with("val_")) continue;
    // NaN and infinity are written as null.
    if (!value.is_number() && !value.is_null()) throw NoLogLine();
    metrics.values.emplace_back(is_old ? "val_" + name : name,
                                value.is_number() ? value.get<double>() : kNan);
  }
  return metrics;
}

LoggedStep StepOf(const Json& line) {
  return {.step = StepIn(line),
          .epoch = CountIn(line, "epoch").value_or(0),
          .time = NumberIn(line, "time"),
          .loss = NumberIn(line, "loss"),
          .lr = NumberIn(line, "lr"),
          .samples_per_s = NumberIn(line, "samples_per_s"),
          .data_wait = NumberIn(line, "data_wait"),
          .left_s = NumberIn(line, "left_s"),
          .grad_norm = NumberIn(line, "grad_norm")};
}

LoggedGpu GpuOf(const Json& line) {
  const auto number = [&](const char* name) { return static_cast<float>(NumberIn(line, name)); };
  constexpr double kMostIndex = 1 << 20;
  return {.index = static_cast<int>(std::clamp(NumberIn(line, "index", 0), 0.0, kMostIndex)),
          .use = number("use"),
          .memory_use = number("memory_use"),
          .memory_used_bytes = NumberIn(line, "memory_used_bytes"),
          .power_w = number("power_w"),
          .temperature_c = number("temperature_c"),
          .sm_clock_mhz = number("sm_clock_mhz")};
}

// Returns whether two verdicts are equal except for their numbers.
bool SayTheSame(std::string_view a, std::string_view b) {
  const auto words = [](std::string_view text) {
    std::string kept;
    std::ranges::copy_if(text, std::back_inserter(kept),
                         [](char c) { return (c < '0' || c > '9') && c != '.'; });
    return kept;
  };
  return a == b || words(a) == words(b);
}

template <typename Lines>
void RemoveFrom(int64_t step, Lines& lines) {
  while (!lines.empty() && lines.back().step >= step) lines.pop_back();
}

// Returns the step of a step line without parsing the whole line; nothing if the line has no valid step.
std::optional<int64_t> StepOfLine(std::string_view line) {
  static constexpr std::string_view kName = R"("step":)";
  const size_t at = line.find(kName, kStepBegins.size());
  if (at == std::string_view::npos || !line.ends_with('}')) return std::nullopt;
  int64_t step = 0;
  const auto [rest, error] =
      std::from_chars(line.data() + at + kName.size(), line.data() + line.size(), step);
  if (error != std::errc() || step < 0 || (*rest != ',' && *rest != '}')) return std::nullopt;
  return step;
}

}  // namespace

double LoggedMetrics::ValueOf(std::string_view name) const {
  for (const auto& [own, value] : values) {
    if (own == name) return value;
  }
  return kNan;
}

double LoggedRun::TrainedAt(double time) const {
  const auto after = std::ranges::upper_bound(jobs, time, {}, &LoggedJob::began);
  if (after == jobs.begin() || std::isnan(time)) return kNan;
  const LoggedJob& job = *std::prev(after);
  return job.earlier_s + time - job.began;
}

RunLog::RunLog(const std::string& run_dir, Keep keep)
    : path_(run_dir + "/log.jsonl"), keep_(keep) {}

bool RunLog::Read() {
  const FileDescriptor file = OpenPlainFile(path_, kInRunFolder, O_RDONLY, why_not_);
  struct stat status {};
  changed_.reset();
  if (file.get() < 0) return false;
  if (fstat(file.get(), &status) != 0) {
    why_not_ = std::strerror(errno);
    return false;
  }
  changed_ = static_cast<double>(status.st_mtim.tv_sec) +
             1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  if (status.st_ino != inode_ || status.st_size < read_bytes_) {
    inode_ = status.st_ino;
    read_bytes_ = 0;
    run_ = {};
    begun_line_.clear();
    unparsed_step_.clear();
    skips_line_ = false;
  }
  const int64_t before = read_bytes_;
  std::string piece(kPieceBytes, '\0');
  while (read_bytes_ < status.st_size) {
    const std::optional<size_t> got =
        ReadAt(file, read_bytes_, std::as_writable_bytes(std::span(piece)));
    if (!got) why_not_ = std::strerror(errno);
    if (got.value_or(0) == 0) break;
    read_bytes_ += static_cast<int64_t>(*got);
    AddPiece({piece.data(), *got});
  }
  ParseLastStep();
  return read_bytes_ > before;
}

void RunLog::RenameLabelAccuracy() {
  for (LoggedMetrics& evaluation : run_.evaluations) {
    const auto named = [&](std::string_view name) {
      return std::ranges::find(evaluation.values, name,
                               [](const auto& value) { return std::string_view(value.first); });
    };
    const auto accuracy = named("val_accuracy");
    // Today's versions write both metrics.
    if (accuracy == evaluation.values.end() || named(kLabelAccuracy) != evaluation.values.end()) {
      continue;
    }
    accuracy->first = kLabelAccuracy;
  }
}

void RunLog::AddPiece(std::string_view piece) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    const bool ends = end != std::string_view::npos;
    const std::string_view part = piece.substr(0, end);
    piece.remove_prefix(ends ? end + 1 : piece.size());
    if (!skips_line_ && begun_line_.size() + part.size() > kMostLineBytes) {
      skips_line_ = true;
      ++run_.bad_lines;
      begun_line_ = {};
    }
    if (skips_line_) {
      skips_line_ = !ends;
    } else if (!ends) {
      begun_line_ += part;
    } else if (begun_line_.empty()) {
      AddLine(part);
    } else {
      AddLine(begun_line_ + std::string(part));
      begun_line_.clear();
    }
  }
}

void RunLog::AddLine(std::string_view line) {
  if (keep_ == Keep::kLastStep && line.starts_with(kStepBegins)) {
    if (const std::optional<int64_t> step = StepOfLine(line)) {
      MakeAgainFrom(*step);
      unparsed_step_ = line;
      return;
    }
  }
  if (keep_ == Keep::kAllSteps) {
    if (std::optional<LoggedStep> step = ReadStepLine(line)) {
      step->time = OnOneClock(step->time);
      AddStep(*step);
      return;
    }
  }
  Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string kind = event.is_object() ? TextIn(event, "event") : "";
  if (kind.empty()) {
    ++run_.bad_lines;
    return;
  }
  if (kind == "start") EndJob();
  if (const double time = NumberIn(event, "time"); std::isfinite(time)) {
    event["time"] = OnOneClock(time);
  }
  try {
    AddEvent(event, kind);
  } catch (const NoLogLine&) {
    ++run_.bad_lines;
  }
}

void RunLog::AddEvent(const Json& line, const std::string& kind) {
  if (kind == "step") {
    AddStep(StepOf(line));
    return;
  }
  if (const double time = NumberIn(line, "time"); std::isfinite(time)) BeginJob(time);
  if (kind == "start") {
    run_.start = line;
    ++run_.starts;
    run_.step = run_.epoch = 0;
    run_.last_step.reset();
    run_.seconds = run_.done = nullptr;
    run_.end = LoggedEnd::kNone;
    run_.why.clear();
  } else if (kind == "resume") {
    const int64_t step = StepIn(line);
    MakeAgainFrom(step + 1);
    run_.step = step;
  } else if (kind == "epoch") {
    LoggedMetrics epoch{.step = StepIn(line),
                        .epoch = CountIn(line, "epoch").value_or(0),
                        .time = NumberIn(line, "time")};
    epoch.values.emplace_back("train_loss", NumberIn(line, "train_loss"));
    RemoveFrom(epoch.step, run_.epochs);
    run_.epoch = epoch.epoch;
    run_.epochs.push_back(std::move(epoch));
  } else if (kind == "eval") {
    LoggedMetrics metrics = MetricsIn(line);
    RemoveFrom(metrics.step, run_.evaluations);
    run_.step = std::max(run_.step, metrics.step);
    run_.epoch = metrics.epoch;
    run_.evaluations.push_back(std::move(metrics));
  } else if (kind == "checkpoint") {
    const int64_t step = StepIn(line);
    std::erase_if(run_.checkpoints, [&](int64_t other) { return other >= step; });
    run_.checkpoints.push_back(step);
  } else if (kind == "warning" || kind == "bad_sample" || kind == "checkpoint_failed") {
    ++run_.warnings;
    run_.last_warnings.push_back(TextIn(line, "reason"));
    if (run_.last_warnings.size() > kMostWarnings) run_.last_warnings.pop_front();
  } else if (kind == "seconds") {
    run_.seconds = line;
    if (keep_ == Keep::kAllSteps) AddSeconds(line);
  } else if (kind == "machine") {
    run_.machine = line;
    if (keep_ == Keep::kAllSteps) AddReading(line);
  } else if (kind == "memory") {
    run_.memory = line;
  } else if (kind == "stopped") {
    run_.step = StepIn(line);
    run_.end = LoggedEnd::kStopped;
    run_.why = TextIn(line, "why");
  } else if (kind == "failed") {
    run_.end = LoggedEnd::kFailed;
    run_.why = TextIn(line, "reason");
  } else if (kind == "done") {
    run_.step = StepIn(line);
    run_.end = LoggedEnd::kDone;
    run_.done = line;
  }
}

void RunLog::AddStep(const LoggedStep& step) {
  MakeAgainFrom(step.step);
  SetLastStep(step);
  if (keep_ == Keep::kAllSteps) run_.steps.push_back(step);
}

// Makes `step` the last step of the run.
void RunLog::SetLastStep(const LoggedStep& step) {
  run_.epoch = std::max(run_.epoch, step.epoch);
  if (std::isfinite(step.time)) BeginJob(step.time);
  run_.last_step = step;
}

void RunLog::ParseLastStep() {
  if (unparsed_step_.empty()) return;
  const Json line = Json::parse(unparsed_step_, nullptr, /*allow_exceptions=*/false);
  unparsed_step_.clear();
  try {
    if (!line.is_object()) throw NoLogLine();
    LoggedStep step = StepOf(line);
    // Other lines, which came after the step, may have been read before.
    step.time += clock_shift_;
    if (!run_.first_time && std::isfinite(step.time)) run_.first_time = step.time;
    if (std::isfinite(step.time)) run_.last_time = std::max(run_.last_time.value_or(0), step.time);
    SetLastStep(step);
  } catch (const NoLogLine&) {
    ++run_.bad_lines;
  }
}

void RunLog::AddSeconds(const Json& line) {
  LoggedSeconds seconds{.time = NumberIn(line, "time"),
                        .step = run_.step,
                        .wall_s = NumberIn(line, "wall_s", 0),
                        .ideal_s = NumberIn(line, "ideal_s", 0)};
  const auto lost = line.find("lost_s");
  if (lost != line.end() && lost->is_object()) {
    for (const auto& [cause, value] : lost->items()) {
      if (!value.is_number()) continue;
      auto known = std::ranges::find(run_.causes, cause);
      if (known == run_.causes.end()) {
        if (run_.causes.size() == kMostCauses) continue;
        known = run_.causes.insert(known, cause);
      }
      const auto at = static_cast<size_t>(known - run_.causes.begin());
      if (seconds.lost_s.size() <= at) seconds.lost_s.resize(at + 1);
      seconds.lost_s[at] = value.get<float>();
    }
  }
  run_.seconds_lines.push_back(std::move(seconds));
  std::string verdict = TextIn(line, "verdict");
  std::string remedy = TextIn(line, "remedy");
  if (!run_.verdicts.empty() && SayTheSame(run_.verdicts.back().verdict, verdict)) {
    run_.verdicts.back().verdict = std::move(verdict);
    run_.verdicts.back().remedy = std::move(remedy);
    return;
  }
  run_.verdicts.push_back(
      {NumberIn(line, "time"), run_.step, std::move(verdict), std::move(remedy)});
  if (run_.verdicts.size() > kMostVerdicts) run_.verdicts.pop_front();
}

void RunLog::AddReading(const Json& line) {
  LoggedReading reading{.time = NumberIn(line, "time"),
                        .step = run_.step,
                        .cpu_use = static_cast<float>(NumberIn(line, "cpu_use")),
                        .memory_used_bytes = NumberIn(line, "memory_used_bytes"),
                        .process_memory_bytes = NumberIn(line, "process_memory_bytes")};
  const auto gpus = line.find("gpus");
  if (gpus != line.end() && gpus->is_array()) {
    for (const Json& gpu : *gpus) {
      if (gpu.is_object()) reading.gpus.push_back(GpuOf(gpu));
    }
  }
  run_.readings.push_back(std::move(reading));
}

// Notes the Unix time of the next line, and returns its time on the log's own clock (LoggedRun::last_logged).
double RunLog::OnOneClock(double time) {
  if (!std::isfinite(time)) return time;
  constexpr double kDay_s = 86'400;
  if (!run_.first_time) run_.first_time = time;
  if (run_.last_logged) {
    const double after_s = time + clock_shift_ - *run_.last_logged;
    // Between two jobs the time may be as long as it likes.
    if (after_s < 0 || (run_.job_began && after_s > kDay_s)) clock_shift_ -= after_s;
  }
  run_.last_time = time;
  return time + clock_shift_;
}

// Notes the time of a line. The first time since EndJob() is the time at which the job began.
void RunLog::BeginJob(double time) {
  run_.last_logged = std::max(run_.last_logged.value_or(time), time);
  if (run_.job_began) return;
  run_.job_began = time;
  if (keep_ == Keep::kAllSteps) run_.jobs.push_back({time, run_.earlier_s});
}

// Adds to earlier_s the seconds for which the last job trained. Must be called at each `start` line, which begins a new
// job.
void RunLog::EndJob() {
  ParseLastStep();
  if (run_.last_logged && run_.job_began) {
    run_.earlier_s += *run_.last_logged - *run_.job_began;
  }
  run_.job_began.reset();
}

// Forgets the lines of `step` and of later steps, because the run makes these steps again.
void RunLog::MakeAgainFrom(int64_t step) {
  RemoveFrom(step, run_.steps);
  RemoveFrom(step, run_.epochs);
  RemoveFrom(step, run_.evaluations);
  run_.step = step;
}

}  // namespace lockstep
