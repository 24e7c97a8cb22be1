#include "trainer/run/time_account.h"

#include <fmt/ranges.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "comm/together.h"
#include "observe/flops.h"
#include "observe/hidden_syncs.h"

namespace lockstep {
namespace {

static_assert(std::is_trivially_copyable_v<RankSeconds>);

RunFacts FactsOf(const config::Config& config, const World& world, const Dataset& train) {
  const bool images = config.data().format() == config::Data::IMAGES;
  return {.on_gpu = world.device.is_cuda(),
          .graph_is_off = !config.graph(),
          .ranks_here = world.local_ranks,
          .cores_here = world.local_cores,
          .cores = world.cores,
          .images = images,
          .decodes_on_gpu = images && train.samples_at_once() > 1,
          .bucket_bytes = config.ddp().bucket_bytes(),
          .reduces_fp32 = config.ddp().reduce_dtype() == config::Ddp::FP32,
          .checkpoint_every_steps = config.checkpoint().every_steps(),
          .checkpoint_every_epochs = config.checkpoint().every_epochs(),
          .keeps_best = !config.checkpoint().keep_best().empty(),
          .validation_fraction = config.data().validation_fraction()};
}

class Readings final : public EventSink {
 public:
  explicit Readings(std::function<void(const MachineReading&)> take) : take_(std::move(take)) {}

  void On(const RunEvent& event) override {
    if (const auto* reading = std::get_if<MachineReading>(&event)) take_(*reading);
  }

 private:
  std::function<void(const MachineReading&)> take_;
};

}  // namespace

TimeAccount::TimeAccount(const config::Config& config, config::Precision precision,
                         const World& world, const Dataset& train, DataWait& data_wait)
    : world_(world),
      data_wait_(data_wait),
      facts_(FactsOf(config, world, train)),
      arithmetic_(ArithmeticOf(world.device, precision)) {}

bool TimeAccount::WatchFirstStep(const std::function<bool()>& act) {
  bool done = false;
  if (!world_.device.is_cuda()) return act();
  // CountFlops() counts only the forward passes, because a backward pass runs on other threads. A backward pass makes
  // twice as many operations as its forward pass, so the step makes three times as many as were counted.
  constexpr int64_t kForwards = 3;
  syncs_ = HiddenSyncs([&] { step_flops_ = kForwards * CountFlops([&] { done = act(); }); });
  facts_.syncs = fmt::format("{}", fmt::join(syncs_, ", "));
  return done;
}

void TimeAccount::CountFromHere(Input& input) {
  data_wait_.CountFromHere(input);
  cores_elsewhere_ = core_wait_.Read();
  exchange_cores_elsewhere_s_ = world_.host.waited_for_core_s();
  reported_at_s_ = SecondsSinceBoot();
  counting_since_ = UnixSeconds();
}

void TimeAccount::ContinueAfter(int64_t step, double time) {
  repeats_until_ = step;
  failed_at_ = time;
}

std::unique_ptr<EventSink> TimeAccount::ReadingsSink() {
  return std::make_unique<Readings>(
      [this](const MachineReading& reading) { TakeReading(reading); });
}

void TimeAccount::TakeReading(const MachineReading& reading) {
  // The driver reports the GPU's use over the last second. So a reading in the first second after counting began is
  // dropped, because it is in part about earlier work.
  if (!counts_ || reading.time < counting_since_ + 1) return;
  const double here = static_cast<double>(world_.local_ranks) / world_.size();
  machine_.Add(reading, step_seen_, here * static_cast<double>(samples_seen_));
}

double TimeAccount::Spend(Loss loss, const std::function<void()>& act) {
  const double begin_s = SecondsSinceBoot();
  const double waited_s = world_.host.waited_s();
  const double waited_for_core_s = world_.host.waited_for_core_s();
  // CPU time is measured only for evaluations, which use much of it. For other acts the measurement would take too
  // long, because some of them happen in each step.
  const bool computes = loss == Loss::kEvaluation;
  const CoreSeconds cores = computes ? core_wait_.Read() : CoreSeconds{};
  act();
  if (computes) cores_elsewhere_ = cores_elsewhere_ + (core_wait_.Read() - cores);
  exchange_elsewhere_s_ += world_.host.waited_s() - waited_s;
  exchange_cores_elsewhere_s_ += world_.host.waited_for_core_s() - waited_for_core_s;
  const double seconds = SecondsSinceBoot() - begin_s;
  if (loss == Loss::kMemory) ledger_.ForgetUnbroken();
  // Time before the end of the first step does not count. While steps are made again after a failure, all time counts
  // as the restart's (restart_s_).
  if (counts_ && failed_at_ == 0) ledger_.Spend(loss, seconds);
  return seconds;
}

double TimeAccount::DelayBeforeStep(const std::string& why_no_graph) const {
  constexpr int64_t kFirst = 12;
  constexpr int64_t kLast = 15;
  constexpr double kLongest = 0.5;
  if (steps_queued_ < kFirst || steps_queued_ > kLast || !LaunchesKernels(why_no_graph)) return 0;
  return std::min(kLongest, 2 * queued_step_s_);
}

void TimeAccount::OnQueued(Input& input, double preprocessing_s, StepReport& report) {
  const Moment before =
      std::exchange(queued_, {.at_s = SecondsSinceBoot(),
                              .data_s = world_.device.is_cuda() ? 0 : data_wait_.Seconds(input),
                              .exchange_s = ExchangeS(),
                              .spent_s = ledger_.spent_s(),
                              .preprocessing_s = preprocessing_s});
  report.batches_queued = input.feed.queued();
  if (failed_at_ > 0 && report.step >= repeats_until_) {
    restart_s_ = std::max(0.0, UnixSeconds() - std::exchange(failed_at_, 0));
  }
  // For the first step nothing is added to `report`, because no time before it was measured.
  if (!std::exchange(counts_, true)) return;
  ++steps_queued_;
  queued_step_s_ = queued_.at_s - before.at_s;
  report.time.between = queued_.spent_s - before.spent_s;
  if (world_.device.is_cuda()) return;
  report.time.total = queued_.at_s - before.at_s;
  report.time.data = queued_.data_s - before.data_s;
  report.time.exchange = queued_.exchange_s - before.exchange_s;
  report.time.preprocessing = queued_.preprocessing_s - before.preprocessing_s;
}

void TimeAccount::OnSeen(Input& input, const StepReport& report) {
  StepSeconds time = report.time;
  if (world_.device.is_cuda()) {
    const double data_s = data_wait_.Seconds(input, report.batches_queued);
    time.data = data_s - std::exchange(seen_data_s_, data_s);
    const double exchange_s = report.figures[ops::kWaitedS];
    time.exchange = exchange_s - std::exchange(seen_exchange_s_, exchange_s);
  }
  step_seen_ = report.step;
  if (report.step <= repeats_until_) return;
  samples_seen_ += time.shape;
  time.on_gpu = world_.device.is_cuda();
  time.unbroken = std::max(0.0, time.unbroken - time.exchange);
  ledger_.Add(time);
}

RankSeconds TimeAccount::Own(Input& input) const {
  RankSeconds own = ledger_.Sum();
  const SampleShares shares = data_wait_.Shares(input);
  own.reading_share = shares.reading;
  own.copying_share = shares.copying;
  const CoreSeconds cores = core_wait_.Read() - cores_elsewhere_;
  own.running_s = cores.running;
  own.core_wait_s = cores.waiting;
  own.exchange_core_wait_s = world_.host.waited_for_core_s() - exchange_cores_elsewhere_s_;
  own.lost(Loss::kRestarts) += restart_s_;
  own.wall_s += restart_s_;
  return own;
}

std::optional<SecondsReport> TimeAccount::Report(Input& input, const Now& now) {
  const double now_s = SecondsSinceBoot();
  if (now_s - reported_at_s_ < kPeriodS) return std::nullopt;
  reported_at_s_ = now_s;
  const RankSeconds own = Own(input);
  if (world_.watchdog != nullptr) {
    if (world_.rank() != 0) {
      world_.watchdog->SetNote({reinterpret_cast<const char*>(&own), sizeof(own)});
      return std::nullopt;
    }
    for (const auto& [rank, note] : world_.watchdog->TakeNotes()) {
      if (note.size() == sizeof(own)) std::memcpy(&others_[rank], note.data(), sizeof(own));
    }
    if (others_.size() + 1 < static_cast<size_t>(world_.size())) return std::nullopt;
  }
  std::vector<RankSeconds> ranks{own};
  for (const auto& [rank, seconds] : others_) ranks.push_back(seconds);
  return JudgeAll(ranks, input, now);
}

SecondsReport TimeAccount::ReportLast(Input& input, const Now& now) {
  return JudgeAll(GatherValues(Own(input), "where the ranks' time went", world_.host), input, now);
}

SecondsReport TimeAccount::JudgeAll(const std::vector<RankSeconds>& ranks, Input& input,
                                    const Now& now) {
  facts_.loader_threads = input.loader.threads();
  facts_.preprocessing_s = now.preprocessing_s;
  facts_.accumulation = now.accumulation;
  facts_.gradient_bytes = static_cast<int64_t>(sizeof(float)) * now.parameters;
  facts_.why_no_graph = now.why_no_graph;
  facts_.launches_kernels = LaunchesKernels(now.why_no_graph);
  facts_.gpu_use = machine_.gpu_use();
  facts_.throttled_share = machine_.throttled_share();
  SecondsReport report = Judge(ranks, facts_);
  report.step = now.step;
  report.busy_share = machine_.gpu_use();
  report.joules_per_sample = machine_.joules_per_sample();
  const double ideal_flops =
      report.ideal_s > 0 ? static_cast<double>(step_flops_ * report.steps) / report.ideal_s : 0;
  const double peak = arithmetic_.peak_flops;
  if (peak > 0 && ideal_flops > 0) report.flops_share = ideal_flops / peak;
  report.findings =
      FindingsOf({.seconds = report,
                  .gpu_memory_share = machine_.gpu_memory_share(),
                  .cpu_use = machine_.cpu_use(),
                  .memory_growth = machine_.memory_growth(),
                  .memory_left = machine_.memory_left(),
                  .is_fp32 = arithmetic_.kind == Arithmetic::kFp32,
                  .faster_precision = arithmetic_.faster_precision,
                  .syncs = facts_.launches_kernels ? syncs_ : std::vector<std::string>{},
                  .accumulation = now.accumulation,
                  .growth = now.growth});
  return report;
}

}  // namespace lockstep
