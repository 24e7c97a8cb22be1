#include "observe/sinks/alert_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "observe/sinks/alert_command.h"

namespace lockstep {
namespace {

// This clock stops while the machine is suspended, so a suspended run does not count as stalled.
using Clock = std::chrono::steady_clock;

struct Alert {
  std::string kind;
  std::string message;
};

std::vector<std::pair<std::string, std::string>> VariablesOf(const Alert& alert,
                                                             const AlertOptions& options) {
  return {{"LOCKSTEP_ALERT", alert.kind},
          {"LOCKSTEP_RUN", options.run_dir},
          {"LOCKSTEP_MESSAGE", alert.message}};
}

class AlertWorker final : public EventWorker {
 public:
  AlertWorker(AlertOptions options, std::shared_ptr<const std::atomic<int64_t>> steps)
      : options_(std::move(options)), steps_(std::move(steps)) {}

  void Work(const std::vector<TimedEvent>& events, bool ends) override {
    for (const TimedEvent& timed : events) {
      std::visit([this](const auto& event) { Take(event); }, timed.event);
    }
    if (!ends) WatchSteps();
    RunNext();
    // If the process ends, alerts that still wait are dropped.
    if (!ends || !running_) return;
    const bool has_ended = running_->WaitFor(kLastSeconds);
    running_.reset();
    if (!has_ended) {
      throw UsageError(
          "observe.on_alert: the command was killed, because it still ran {} s after the end of "
          "the "
          "run: let it leave what takes long to another process (setsid)",
          kLastSeconds.count());
    }
  }

 private:
  // Notes the time of an event that has no overload of its own, because the event shows that the run goes on.
  template <typename Event>
  void Take(const Event&) {
    last_life_ = Clock::now();
  }

  void Take(const RunStarted& event) {
    last_life_ = Clock::now();
    evaluates_ = event.validation_samples > 0;
  }
  void Take(const EpochDone&) {
    last_life_ = Clock::now();
    is_evaluating_ = evaluates_;
  }
  void Take(const Evaluated&) {
    last_life_ = Clock::now();
    is_evaluating_ = false;
  }

  void Take(const MachineReading&) {}
  void Take(const RunWarning&) {}

  void Take(const SecondsReport& report) {
    const bool is_slow = report.ideal_share() < options_.alert_below;
    if (!std::exchange(slow_, is_slow) && is_slow) {
      Raise({"slow", fmt::format("step {}: trains at {:.0f} % of its own best speed, less than "
                                 "observe.alert_below{}{}{}{}",
                                 report.step, 100 * report.ideal_share(),
                                 report.verdict.empty() ? "" : ": ", report.verdict,
                                 report.remedy.empty() ? "" : ": ", report.remedy)});
    }
  }

  void Take(const RunFailed& event) {
    running_.reset();
    waiting_.clear();
    Raise(
        {"failed", fmt::format("step {}: status {}: {}", event.step, event.status, event.reason)});
  }

  void WatchSteps() {
    const Clock::time_point now = Clock::now();
    const int64_t steps = steps_->load(std::memory_order_relaxed);
    if (std::exchange(last_step_, steps) != steps) {
      last_life_ = now;
      stalled_ = false;
    }
    const double idle_s = std::chrono::duration<double>(now - last_life_).count();
    if (is_evaluating_ || idle_s < options_.stall_s || std::exchange(stalled_, true)) return;
    Raise({"stalled", fmt::format("no step for {:.0f} s after step {}", idle_s, steps)});
  }

  void Raise(Alert alert) {
    const auto is_same = [&](const Alert& other) { return other.kind == alert.kind; };
    std::erase_if(waiting_, is_same);
    waiting_.push_back(std::move(alert));
  }

  void RunNext() {
    if (running_ && running_->HasEnded()) running_.reset();
    if (running_ || waiting_.empty()) return;
    const Alert alert = std::move(waiting_.front());
    waiting_.pop_front();
    running_.emplace(options_.command, VariablesOf(alert, options_));
  }

  AlertOptions options_;
  std::shared_ptr<const std::atomic<int64_t>> steps_;
  int64_t last_step_ = 0;
  Clock::time_point last_life_ = Clock::now();
  bool evaluates_ = false;  // whether an evaluation follows each epoch
  bool is_evaluating_ = false;
  bool stalled_ = false;
  bool slow_ = false;
  std::deque<Alert> waiting_;
  std::optional<AlertCommand> running_;
};

}  // namespace

void AlertOfLostRank(const AlertOptions& options, int status, const std::string& why) {
  const Alert alert{"failed", fmt::format("status {}: {}", status, why)};
  try {
    AlertCommand(options.command, VariablesOf(alert, options)).Detach();
  } catch (const Error&) {  // the job ends anyway, and prints why
  }
}

std::unique_ptr<EventSink> NewAlertSink(AlertOptions options,
                                        std::shared_ptr<const std::atomic<int64_t>> steps) {
  return NewBackgroundSink("observe.on_alert",
                           std::make_unique<AlertWorker>(std::move(options), std::move(steps)));
}

}  // namespace lockstep
