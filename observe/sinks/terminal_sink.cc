#include "observe/sinks/terminal_sink.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

#include "base/live_line.h"
#include "base/printable_number.h"
#include "base/say.h"
#include "observe/machine/machine_text.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPlainPeriod{5};

std::string Rate(double samples_per_s) {
  return samples_per_s < 1e4 ? fmt::format("{:.0f}", samples_per_s)
                             : fmt::format("{:.1f}k", samples_per_s / 1e3);
}

// Prints warnings, but leaves out most repetitions of a warning. A full disk, for example, causes the same warning at
// each checkpoint. The log has all warnings.
class CountedWarnings {
 public:
  void Say(const std::string& what) {
    if (const std::optional<std::string> times = repeats_.Count(what)) Warn(what + *times);
  }

 private:
  Repeats repeats_;
};

class TerminalSink final : public EventSink {
 public:
  explicit TerminalSink(bool live) : line_(live, kPlainPeriod) {}

  void On(const RunEvent& event) override {
    std::visit([this](const auto& kind) { Tell(kind); }, event);
  }

 private:
  void Tell(const RunStarted& event) {
    epochs_ = event.epochs;
    steps_ = event.steps;
    evaluates_ = event.validation_samples > 0;
    line_.Say(fmt::format(
        "{}: {} with {} parameters on {} rank{} ({}), {} samples, {}, {} steps of {}",
        event.run_dir, event.model, event.parameters, event.ranks, event.ranks == 1 ? "" : "s",
        event.on_gpu ? "CUDA" : "CPU", event.samples,
        event.validation_samples > 0 ? fmt::format("{} held back", event.validation_samples)
                                     : "none held back (data.validation_fraction does so)",
        event.steps, event.global_batch));
  }

  void Tell(const RunResumed& event) {
    line_.Say(fmt::format("going on from {}{}{}", event.checkpoint,
                          event.differences.empty() ? "" : ", with ",
                          fmt::join(event.differences, "; ")));
  }

  void Tell(const StepDone& event) {
    const StepReport& report = event.report;
    if (report.step < steps_ && !line_.IsDue()) return;
    std::string line = fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {} samples/s",
                                   report.epoch, epochs_, report.step, steps_,
                                   PrintableNumber(report.loss()), Rate(report.samples_per_s));
    if (report.seconds_left >= 0 && report.step < steps_) {
      line += fmt::format("  {} left", DurationText(report.seconds_left));
    }
    if (line_.is_live() && !machine_.empty()) line += "  " + machine_;
    line_.Show(line);
  }

  void Tell(const RunsWithoutGraph& event) {
    line_.Say(fmt::format("steps run without a CUDA graph: {}", event.reason));
  }

  void Tell(const MemoryReport& report) {
    if (report.on_gpu) line_.Say(TextOf(report));
  }

  void Tell(const MicroBatchChosen& event) {
    line_.Say(fmt::format("micro_batch: AUTO: {} micro-batch{} of {} samples: {}",
                          event.accumulation, event.accumulation == 1 ? "" : "es",
                          event.micro_batch, event.why));
  }

  void Tell(const KernelsGenerated& event) {
    if (event.compiled == 0) return;
    line_.Say(
        fmt::format("kernels: {} were compiled for this model and GPU, for which the first step "
                    "waited {:.1f} s, and {} were "
                    "there already: the next run finds them all",
                    event.compiled, event.waited_s, event.kept));
  }

  void Tell(const OutOfMemory& event) {
    line_.Say(fmt::format(
        "step {}: out of memory with micro-batches of {} samples; going on with the same steps of "
        "{} micro-batches of {}: set accumulation: {} to start so{}",
        event.step, event.too_many, event.accumulation, event.micro_batch, event.accumulation,
        EndOfLine(event.failed)));
  }

  void Tell(const CheckpointsLeftDevice& event) {
    line_.Say(fmt::format(
        "step {}: out of memory; from here on checkpoints are copied to the host's", event.step));
  }

  void Tell(const GraphsGaveWay& event) {
    line_.Say(fmt::format(
        "step {}: out of memory beside the graphs of other steps, which are captured again",
        event.step));
  }

  void Tell(const BadSample& event) { line_.Say(event.reason); }

  void Tell(const EpochDone& event) {
    epoch_ = fmt::format("epoch {}/{}  step {}/{}  training loss {:.4f}", event.epoch, epochs_,
                         event.step, steps_, PrintableNumber(event.loss));
    if (!evaluates_) line_.Say(epoch_);
  }

  void Tell(const Evaluated& event) {
    line_.Say(fmt::format("{}  validation {}", epoch_, BriefMetricsText(event.metrics)));
  }

  void Tell(const CheckpointSaved&) {}

  void Tell(const CheckpointLate& event) {
    line_.Say(fmt::format(
        "step {}: the checkpoint before is still being written; the next begins after it",
        event.step));
  }

  void Tell(const CheckpointFailed& event) {
    warnings_.Say(fmt::format("no checkpoint of step {}: {}", event.step, event.reason));
  }

  void Tell(const RunWarning& event) { warnings_.Say(event.reason); }

  void Tell(const Profiled& event) {
    line_.Say(fmt::format("profiled {} step{} from step {} on: {}", event.steps,
                          event.steps == 1 ? "" : "s", event.step, event.folder));
    for (const std::string& sentence : event.slower) line_.Say("slower: " + sentence);
  }

  void Tell(const RunStopped& event) {
    line_.Say(fmt::format("stopped after step {} of {} ({}): the same command goes on from there",
                          event.step, event.steps, event.why));
  }

  void Tell(const RunFailed&) {}

  void Tell(const Histograms&) {}

  void Tell(const MachineReading& event) { machine_ = LiveText(event); }

  void Tell(const SecondsReport& report) {
    if (!report.verdict.empty() && std::exchange(told_, report.cause) != report.cause) {
      line_.Say(
          fmt::format("step {}/{}  {}: {}", report.step, steps_, report.verdict, report.remedy));
    }
    for (const RunFinding& finding : report.findings) {
      if (finding.remedy == report.remedy || !told_rules_.insert(finding.rule).second) continue;
      line_.Say(
          fmt::format("step {}/{}  {}: {}", report.step, steps_, finding.words, finding.remedy));
    }
  }

  void Tell(const RunDone& event) {
    if (!event.early.empty()) line_.Say("early stopping: " + event.early);
    line_.Say(fmt::format("done: {:.0f} samples/s, first step after {:.2f} s; weights in {}",
                          event.samples_per_s, event.first_step_s, event.weights));
  }

  LiveLine line_;
  CountedWarnings warnings_;
  std::optional<Loss> told_;          // the cause of the last verdict that was printed
  std::set<std::string> told_rules_;  // the rules whose findings were printed
  int64_t epochs_ = 0;
  int64_t steps_ = 0;
  bool evaluates_ = false;  // whether there is an evaluation at the end of each epoch
  std::string epoch_;       // the text about the epoch that has just ended
  std::string machine_;     // the text of the last reading
};

class RankWarningSink final : public EventSink {
 public:
  explicit RankWarningSink(int rank) : rank_(rank) {}

  void On(const RunEvent& event) override {
    if (const auto* bad = std::get_if<BadSample>(&event)) {
      Warn(fmt::format("rank {}: {}", rank_, bad->reason));
    } else if (const auto* failed = std::get_if<CheckpointFailed>(&event)) {
      warnings_.Say(fmt::format("rank {}: no checkpoint of step {}: {}", rank_, failed->step,
                                failed->reason));
    }
  }

 private:
  int rank_;
  CountedWarnings warnings_;
};

}  // namespace

std::unique_ptr<EventSink> NewTerminalSink(bool live) {
  return std::make_unique<TerminalSink>(live);
}

std::unique_ptr<EventSink> NewRankWarningSink(int rank) {
  return std::make_unique<RankWarningSink>(rank);
}

}  // namespace lockstep
