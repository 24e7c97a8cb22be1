#include "trainer/run/time_account.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"

namespace lockstep {
namespace {

static_assert(std::is_trivially_copyable_v<RankSeconds>);

RunFacts FactsOf(const config::Config& config, const World& world, const Dataset& train) {
  const bool images = config.data().format() == config::Data::IMAGES;
  return {.on_gpu = world.device.is_cuda(),
          .ranks_here = world.local_ranks,
          .cores_here = UsableCores(),
          .cores = world.cores,
          .images = images,
          .decodes_on_gpu = images && train.samples_at_once() > 1,
          .bucket_bytes = config.ddp().bucket_bytes(),
          .reduces_fp32 = config.ddp().reduce_dtype() == config::Ddp::FP32,
          .checkpoint_every_steps = config.checkpoint().every_steps(),
          .checkpoint_every_epochs = config.checkpoint().every_epochs(),
          .validation_fraction = config.data().validation_fraction()};
}

}  // namespace

TimeAccount::TimeAccount(const config::Config& config, const World& world, const Dataset& train,
                         DataWait& data_wait)
    : world_(world), data_wait_(data_wait), facts_(FactsOf(config, world, train)) {}

void TimeAccount::CountFromHere(Input& input) {
  data_wait_.CountFromHere(input);
  core_wait_before_s_ = core_wait_.Seconds();
  reported_at_s_ = SecondsSinceBoot();
}

void TimeAccount::Spend(Loss loss, const std::function<void()>& act) {
  const double begin_s = SecondsSinceBoot();
  const double waited_s = world_.host.waited_s();
  act();
  exchange_elsewhere_s_ += world_.host.waited_s() - waited_s;
  ledger_.Spend(loss, SecondsSinceBoot() - begin_s);
}

void TimeAccount::OnQueued(Input& input, double preprocessing_s, StepReport& report) {
  const Moment before =
      std::exchange(queued_, {.at_s = SecondsSinceBoot(),
                              .data_s = world_.device.is_cuda() ? 0 : data_wait_.Seconds(input),
                              .exchange_s = ExchangeS(),
                              .spent_s = ledger_.spent_s(),
                              .preprocessing_s = preprocessing_s});
  report.batches_queued = input.feed.queued();
  // The end of the first step is where the next one's time begins.
  if (!std::exchange(counts_, true)) return;
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
  if (time.total > 0) ledger_.Add(time);
}

RankSeconds TimeAccount::Own(Input& input) const {
  RankSeconds own = ledger_.Sum();
  const SampleShares shares = data_wait_.Shares(input);
  own.reading_share = shares.reading;
  own.copying_share = shares.copying;
  own.core_wait_s = core_wait_.Seconds() - core_wait_before_s_;
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
  const RankSeconds own = Own(input);
  const at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(own))}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &own, sizeof(own));
  const at::Tensor all = at::empty({world_.size() * bytes.numel()}, at::kByte);
  world_.host.AllGather(all, bytes, world_.host.MakeLabel("where the ranks' time went")).Wait();
  std::vector<RankSeconds> ranks(static_cast<size_t>(world_.size()));
  std::memcpy(ranks.data(), all.const_data_ptr(), all.nbytes());
  return JudgeAll(ranks, input, now);
}

SecondsReport TimeAccount::JudgeAll(const std::vector<RankSeconds>& ranks, Input& input,
                                    const Now& now) {
  facts_.loader_threads = input.loader.threads();
  facts_.preprocessing_s = now.preprocessing_s;
  facts_.accumulation = now.accumulation;
  facts_.gradient_bytes = static_cast<int64_t>(sizeof(float)) * now.parameters;
  facts_.why_no_graph = now.why_no_graph;
  SecondsReport report = Judge(ranks, facts_);
  report.step = now.step;
  return report;
}

}  // namespace lockstep
