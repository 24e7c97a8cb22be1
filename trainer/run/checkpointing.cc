#include "trainer/run/checkpointing.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/say.h"
#include "comm/together.h"
#include "observe/metric_order.h"

namespace lockstep {
namespace {

// The number of optimizer steps between two checks whether a late checkpoint can begin.
constexpr int64_t kLateInterval = 8;

// The number of seconds between two checks whether the user has asked for a checkpoint.
constexpr double kLookInterval = 0.5;

Saver::Options SaverOptionsFor(const config::Config& config, const World& world,
                               const std::string& attempt, const checkpoint::Manifest& manifest,
                               const std::map<std::string, std::string>& model_metadata) {
  const config::Checkpoint& when = config.checkpoint();
  return {.run_dir = config.run_dir(),
          .attempt = attempt,
          .rank = world.rank(),
          .ranks = world.size(),
          .retention = {.newest = static_cast<size_t>(when.keep()),
                        .every_steps = when.keep_every_steps(),
                        .best = when.keep_best(),
                        .greater_is_better = GreaterIsBetter(when.keep_best())},
          .bytes_per_s = 1e6 * when.max_mb_per_s() / world.size(),
          .manifest = manifest,
          .model_metadata = model_metadata};
}

}  // namespace

Checkpointing::Checkpointing(const config::Config& config, const World& world, RunFolder* folder,
                             RunEvents& events, const std::string& attempt,
                             const checkpoint::Manifest& manifest,
                             const std::map<std::string, std::string>& model_metadata,
                             std::optional<int64_t> resumed_step,
                             std::function<CheckpointState()> state)
    : when_(config.checkpoint()),
      world_(world),
      folder_(folder),
      events_(events),
      state_(std::move(state)),
      saver_(world.device, SaverOptionsFor(config, world, attempt, manifest, model_metadata)),
      begun_(resumed_step),
      best_(GreaterIsBetter(when_.keep_best())),
      begun_s_(SecondsSinceBoot()) {}

int64_t Checkpointing::Asked() {
  if (folder_ == nullptr) return 0;
  const double now = SecondsSinceBoot();
  if (when_.every_minutes() > 0 && now - begun_s_ >= 60 * when_.every_minutes()) {
    begun_s_ = now;
    ++asked_;
  }
  if (now - looked_s_ >= kLookInterval) {
    looked_s_ = now;
    if (!user_waits_ && folder_->CheckpointIsRequested()) {
      user_waits_ = true;
      ++asked_;
    }
  }
  return asked_;
}

void Checkpointing::OnFigures(int64_t step, int64_t asked) {
  saver_.Release(step);
  if (asked > std::exchange(heard_, asked)) wanted_ = true;
}

bool Checkpointing::IsDue(int64_t steps_done, int64_t ended_epoch) const {
  if (when_.every_steps() > 0 && steps_done % when_.every_steps() == 0) return true;
  if (ended_epoch > 0 && when_.every_epochs() > 0 && ended_epoch % when_.every_epochs() == 0) {
    return true;
  }
  if (when_.keep_every_steps() > 0 && steps_done % when_.keep_every_steps() == 0) return true;
  return wanted_ || (late_ && steps_done % kLateInterval == 0);
}

bool Checkpointing::IsBest(std::span<const Metric> evaluation) {
  const auto metric = std::ranges::find(evaluation, when_.keep_best(), &Metric::name);
  if (metric == evaluation.end()) return false;
  // A checkpoint that has failed may have been the one with the best value. So after such a failure this evaluation
  // counts as the best.
  if (OnAny(failed_, "whether a checkpoint failed")) {
    best_ = BestSoFar(GreaterIsBetter(when_.keep_best()));
  }
  return best_.Add(metric->value);
}

void Checkpointing::AfterStep(int64_t steps_done, int64_t ended_epoch,
                              std::span<const Metric> evaluation) {
  Tell();
  const bool is_best = IsBest(evaluation);
  if (!is_best && !IsDue(steps_done, ended_epoch)) return;
  wanted_ = false;
  // The best checkpoint must hold the state that was just evaluated. So training waits here until the previous
  // checkpoint has ended, instead of saving at a later step.
  if (is_best) FinishSaving();
  if (OnAny(failed_, "whether a checkpoint failed")) saver_.Abandon();
  if (OnAny(saver_.busy(), "whether a checkpoint is being written")) {
    if (!std::exchange(late_, true)) events_.Emit(CheckpointLate{steps_done});
    return;
  }
  Save(steps_done);
}

void Checkpointing::Save(int64_t steps_done) {
  Tell();
  failed_ = late_ = false;
  begun_ = steps_done;
  begun_s_ = SecondsSinceBoot();
  user_waits_for_this_ = user_waits_;
  const CheckpointState state = state_();
  saver_.Save(steps_done, state.model, state.tree, state.samples, state.facts);
}

void Checkpointing::SaveLast(int64_t steps_done, const std::function<void()>& see_figures) {
  see_figures();
  // If this process has made no step, OnFigures() was not called and has not allowed the commit at `steps_done`.
  saver_.Release(steps_done);
  FinishSaving();
  if (begun_ != steps_done) {
    Save(steps_done);
    FinishSaving();
  }
  Together(world_.host, [&] {
    const std::optional<Saver::Outcome> outcome = saver_.TakeOutcome();
    if (!outcome) return;
    if (outcome->error.empty()) {
      Tell(*outcome);
      return;
    }
    try {
      saver_.RemoveRemains();
    } catch (const Error& error) {
      Warn(error.what());
    }
    // If this rank has given up because another rank failed, that rank reports the cause.
    if (!outcome->given_up) throw CheckpointError("{}", outcome->error);
  });
}

bool Checkpointing::LeaveDeviceMemory(const std::function<void()>& see_figures) {
  if (!OnAny(saver_.holds_device_memory(), "whether a checkpoint takes memory")) return false;
  see_figures();
  FinishSaving();
  saver_.LeaveDeviceMemory();
  return true;
}

// Waits until no rank is writing a checkpoint. The ranks wait in repeated short collectives, so that the watchdog
// considers none of them hung.
void Checkpointing::FinishSaving() {
  constexpr std::chrono::milliseconds kInterval{5};
  while (OnAny(saver_.busy(), "whether a checkpoint is being written")) {
    const bool failed = world_.rank() != 0 && (saver_.failed() || failed_);
    if (OnAny(failed, "whether a checkpoint failed")) saver_.Abandon();
    std::this_thread::sleep_for(kInterval);
  }
}

void Checkpointing::Tell() {
  if (const std::optional<Saver::Outcome> outcome = saver_.TakeOutcome()) Tell(*outcome);
}

void Checkpointing::Tell(const Saver::Outcome& outcome) {
  if (folder_ != nullptr && std::exchange(user_waits_for_this_, false)) {
    user_waits_ = false;
    folder_->AnswerRequest();
  }
  if (!outcome.error.empty()) {
    failed_ = true;
    events_.Emit(CheckpointFailed{outcome.step, outcome.error});
    return;
  }
  slowest_s_ = std::max(slowest_s_.value_or(0), outcome.seconds);
  events_.Emit(CheckpointSaved{outcome.step, outcome.snapshot_s, outcome.seconds, outcome.bytes});
  if (!outcome.warning.empty()) events_.Emit(RunWarning{outcome.warning});
}

bool Checkpointing::OnAny(bool own, const char* what) const {
  return OnAnyRank(own, what, world_.host);
}

}  // namespace lockstep
