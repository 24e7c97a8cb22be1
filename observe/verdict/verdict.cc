#include "observe/verdict/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

// The exchange of a gradient bucket that is smaller than kSmallBucket bytes is mostly latency.
constexpr int64_t kSmallBucket = int64_t{1} << 20;
constexpr int64_t kUsualBucket = int64_t{25} << 20;

// Returns the rank for which the others wait: the rank that spends the least share of its time on waiting for the
// exchange.
size_t CriticalRank(const std::vector<RankSeconds>& ranks) {
  const auto waits = [](const RankSeconds& rank) {
    return rank.wall_s > 0 ? rank.lost(Loss::kCommunication) / rank.wall_s : 0;
  };
  size_t critical = 0;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (waits(ranks[rank]) < waits(ranks[critical])) critical = rank;
  }
  return critical;
}

double ComputedPerStep(const RankSeconds& rank) {
  return rank.steps > 0 ? rank.computed_s / static_cast<double>(rank.steps) : 0;
}

// Returns the seconds by which rank `critical` computes longer than the other ranks' mean.
double Behind(const std::vector<RankSeconds>& ranks, size_t critical) {
  if (ranks.size() < 2) return 0;
  double others = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank != critical) others += ComputedPerStep(ranks[rank]);
  }
  others /= static_cast<double>(ranks.size() - 1);
  const RankSeconds& own = ranks[critical];
  return std::max(0.0, (ComputedPerStep(own) - others) * static_cast<double>(own.steps));
}

// Returns for how many seconds the training thread of `rank` waited for a core while it computed or, if it reads the
// samples itself (`reads`), while it read them. A thread that has waited for other ranks may still wait for a core
// afterwards. This second wait is part of RankSeconds::core_wait_s, but was measured as waiting for other ranks.
double CoreWaitOfWork(const RankSeconds& rank, bool reads) {
  const double works_s =
      rank.computed_s + (reads ? rank.lost(Loss::kReading) + rank.lost(Loss::kDecoding) : 0);
  return std::clamp(works_s - rank.running_s, 0.0, std::max(0.0, rank.core_wait_s));
}

// Returns for how many seconds rank `critical` waited for other ranks because a thread had no core: the other ranks'
// training threads came late to the exchange, a thread that exchanges data could not go on, or the rank's training
// thread could not go on after the exchange.
double CoreWaitOfExchange(const std::vector<RankSeconds>& ranks, size_t critical, bool reads) {
  double exchanging_s = 0;
  double late_s = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    exchanging_s = std::max(exchanging_s, ranks[rank].exchange_core_wait_s);
    if (rank != critical) late_s += CoreWaitOfWork(ranks[rank], reads);
  }
  const RankSeconds& own = ranks[critical];
  const double after_s = std::max(0.0, own.core_wait_s - CoreWaitOfWork(own, reads));
  return std::min(own.lost(Loss::kCommunication), exchanging_s + late_s + after_s);
}

// Returns the seconds in which the GPU had nothing to do because the host had not launched the GPU's next kernel yet.
// Steps that run as a CUDA graph lose no time in this way.
double NotLaunched(double computed_s, double unbroken_s, const SecondsReport& report,
                   const RunFacts& facts) {
  if (!facts.launches_kernels) return 0;
  if (unbroken_s > 0) return std::max(0.0, computed_s - unbroken_s);
  // No unbroken step (StepSeconds::unbroken in ledger.h) was measured, for example because the model waits for the GPU,
  // so that the host cannot queue a whole step ahead. The GPU's idle time is then estimated from facts.gpu_use, which
  // the driver reports. This estimate misses some of the idle time.
  if (facts.gpu_use < 0) return 0;
  double idle_s = report.wall_s * (1 - facts.gpu_use);
  for (const Loss loss : {Loss::kReading, Loss::kDecoding, Loss::kCopying, Loss::kLaunching,
                          Loss::kCheckpoints, Loss::kMemory, Loss::kRestarts, Loss::kCores}) {
    idle_s -= report.lost(loss);
  }
  return std::max(0.0, idle_s);
}

// Returns how to raise loader.threads. Assumes that the samples per second grow with the number of threads up to
// `most_threads`. Returns an empty text if there are at least `most_threads` threads already.
std::string MoreThreads(const SecondsReport& report, const RunFacts& facts, double lost_s,
                        int most_threads) {
  if (facts.loader_threads == 0) return "loader.threads: 1";
  const double needed = facts.loader_threads * (1 + lost_s / std::max(report.ideal_s, 1e-9));
  const int threads = std::min(static_cast<int>(std::ceil(needed)), most_threads);
  if (threads <= facts.loader_threads) return "";
  return fmt::format("loader.threads: {} -> {}", facts.loader_threads, threads);
}

// Returns the factor by which a loss must be multiplied, so that its share of the whole time falls from `share` to
// `wanted` while all other time stays the same.
double Shrink(double share, double wanted) { return wanted * (1 - share) / ((1 - wanted) * share); }

std::string RemedyOf(Loss loss, const SecondsReport& report, const RunFacts& facts) {
  const double lost_s = report.lost_s[static_cast<size_t>(loss)];
  const double share = lost_s / report.wall_s;
  switch (loss) {
    case Loss::kReading: {
      // A thread that waits for a read uses no core, so more threads than cores can read.
      constexpr int kThreadsPerCore = 4;
      const std::string more = MoreThreads(report, facts, lost_s, kThreadsPerCore * facts.cores);
      return more.empty()
                 ? "keep the data on a faster disk, or make them smaller (lockstep prepare)"
                 : more + ", or a faster disk";
    }
    case Loss::kDecoding: {
      if (facts.preprocessing_s > lost_s / 2) {
        return "fewer or cheaper data.augment fields: the thread that trains computes them";
      }
      std::string more = MoreThreads(report, facts, lost_s, facts.cores);
      if (!more.empty()) return more;
      if (facts.images && facts.on_gpu && !facts.decodes_on_gpu) return "data.images.decode: GPU";
      return "smaller samples (lockstep prepare), or more cores for each rank";
    }
    case Loss::kCopying:
      return "smaller samples (uint8 pixels), or loader.slots higher";
    case Loss::kLaunching:
      if (!facts.syncs.empty()) {
        return fmt::format("the model waits for the GPU in {}: keep its values on the GPU",
                           facts.syncs);
      }
      if (facts.graph_is_off) return "graph: true";
      return facts.why_no_graph.empty()
                 ? "a larger global_batch or smaller accumulation, so that a step has more to "
                   "compute"
                 : fmt::format("steps run without a CUDA graph ({})", facts.why_no_graph);
    case Loss::kCommunication:
      if (facts.bucket_bytes < kSmallBucket && facts.gradient_bytes > facts.bucket_bytes) {
        return fmt::format("ddp.bucket_bytes: {} -> {}", facts.bucket_bytes, kUsualBucket);
      }
      return facts.reduces_fp32
                 ? "a larger global_batch with accumulation, or ddp.reduce_dtype: BF16"
                 : "a larger global_batch with accumulation, or a faster network";
    case Loss::kSlowRank:
      return fmt::format(
          "rank {} computes more slowly than the others: see what else its machine "
          "does (lockstep watch)",
          report.slow_rank);
    case Loss::kCores:
      return facts.ranks_here > facts.cores_here
                 ? fmt::format("{} ranks share {} cores: start {} (-n {})", facts.ranks_here,
                               facts.cores_here, facts.cores_here, facts.cores_here)
                 : "other processes use this machine's cores, or loader.threads is too high";
    case Loss::kEvaluation:
      return facts.validation_fraction > 0
                 ? fmt::format("data.validation_fraction: {:.2g} -> {:.2g}",
                               facts.validation_fraction,
                               facts.validation_fraction * Shrink(share, kLeastShare))
                 : "fewer validation samples";
    case Loss::kCheckpoints: {
      constexpr double kWanted = 0.01;
      const auto times = static_cast<int64_t>(std::ceil(1 / Shrink(share, kWanted)));
      if (facts.keeps_best) {
        return "checkpoint.keep_best saves after each evaluation that is the best so far: larger "
               "epochs, or a faster disk";
      }
      if (facts.checkpoint_every_steps > 0) {
        return fmt::format("checkpoint.every_steps: {} -> {}", facts.checkpoint_every_steps,
                           facts.checkpoint_every_steps * times);
      }
      if (facts.checkpoint_every_epochs > 0) {
        return fmt::format("checkpoint.every_epochs: {} -> {}", facts.checkpoint_every_epochs,
                           facts.checkpoint_every_epochs * times);
      }
      return "checkpoint.every_minutes higher, or a faster disk";
    }
    case Loss::kMemory:
      return fmt::format("accumulation: {}", facts.accumulation);
    case Loss::kRestarts:
      return "the failed lines of log.jsonl and lockstep flight say why the job was restarted";
    case Loss::kThrottling:
      return "cooling, or the power supply (nvidia-smi -q -d PERFORMANCE says which)";
    case Loss::kOther:
      break;
  }
  return "";
}

}  // namespace

SecondsReport Judge(const std::vector<RankSeconds>& ranks, const RunFacts& facts) {
  const size_t critical = CriticalRank(ranks);
  const RankSeconds& own = ranks[critical];
  SecondsReport report{.steps = own.steps, .wall_s = own.wall_s, .lost_s = own.lost_s};
  const auto lost = [&](Loss loss) -> double& { return report.lost_s[static_cast<size_t>(loss)]; };

  // Without loader threads the training thread also reads the samples, and may wait for a core while it reads.
  const bool reads = facts.loader_threads == 0;
  double core_wait_s = CoreWaitOfWork(own, reads);
  const double works_s =
      own.computed_s + (reads ? lost(Loss::kReading) + lost(Loss::kDecoding) : 0);
  if (reads && works_s > 0) {
    const double share = core_wait_s / works_s;
    for (const Loss loss : {Loss::kReading, Loss::kDecoding}) {
      lost(Loss::kCores) += share * lost(loss);
      lost(loss) *= 1 - share;
    }
    core_wait_s = share * own.computed_s;
  }
  const double samples_s = lost(Loss::kReading);
  lost(Loss::kReading) = samples_s * own.reading_share;
  lost(Loss::kDecoding) += samples_s * (1 - own.reading_share - own.copying_share);
  lost(Loss::kCopying) = samples_s * own.copying_share;

  // If there are more ranks than cores, ranks wait for each other because one of them has no core, so this wait counts
  // as a wait for a core.
  if (!facts.on_gpu) {
    const double exchange_s = facts.ranks_here > facts.cores_here
                                  ? lost(Loss::kCommunication)
                                  : CoreWaitOfExchange(ranks, critical, reads);
    lost(Loss::kCommunication) -= exchange_s;
    lost(Loss::kCores) += exchange_s;
  }

  // take() moves seconds from the computing time to a loss, but not more seconds than are left of the computing time.
  // The causes that were measured come first.
  double computed_s = own.computed_s;
  const auto take = [&](Loss loss, double seconds) {
    const double taken = std::clamp(seconds, 0.0, computed_s);
    lost(loss) += taken;
    computed_s -= taken;
    return taken;
  };
  // While a GPU is busy, the GPU loses no time if the host waits for a core. The wait for a core therefore counts only
  // up to the time in which the GPU had nothing to do.
  if (facts.on_gpu) {
    core_wait_s = std::min(core_wait_s, NotLaunched(computed_s, own.unbroken_s, report, facts));
  }
  const double cores_s = take(Loss::kCores, core_wait_s);
  const double behind_s = take(Loss::kSlowRank, Behind(ranks, critical) - cores_s);
  if (behind_s > 0) report.slow_rank = static_cast<int>(critical);
  take(Loss::kThrottling, report.wall_s * facts.throttled_share);
  const double launching_s =
      take(Loss::kLaunching, NotLaunched(computed_s, own.unbroken_s, report, facts));
  // A host that launches its kernels late also launches its copies late. If launching costs more time than copying, the
  // time lost to copying therefore counts as launching.
  if (launching_s > lost(Loss::kCopying)) {
    lost(Loss::kLaunching) += std::exchange(lost(Loss::kCopying), 0);
  }
  // The causes above slow down every step, including the fastest steps from which own.ideal_s is computed, so the ideal
  // time is reduced in proportion.
  const double everywhere =
      own.computed_s - cores_s > 0 ? computed_s / (own.computed_s - cores_s) : 1;
  report.ideal_s = std::min(computed_s, own.ideal_s * everywhere);
  const double varies_s = computed_s - report.ideal_s;
  // If the GPU mostly waits for the host, the GPU's computing time varies because the host's time varies, so the
  // variation counts as launching.
  const bool host_varies = own.unbroken_s > 0 && launching_s > varies_s;
  lost(host_varies ? Loss::kLaunching : Loss::kOther) += varies_s;

  if (report.steps < kLeastSteps || report.wall_s < kLeastSeconds) return report;
  std::optional<Loss> greatest;
  for (const Loss loss : kLosses) {
    if (loss != Loss::kOther && (!greatest || lost(loss) > lost(*greatest))) greatest = loss;
  }
  if (!greatest || lost(*greatest) < kLeastShare * report.wall_s) return report;
  report.verdict = fmt::format("{:.0f} % of this {}'s own speed; lost {:.0f} % to {}",
                               100 * report.ideal_share(), facts.on_gpu ? "GPU" : "machine",
                               100 * lost(*greatest) / report.wall_s, WordsOf(*greatest));
  report.remedy = RemedyOf(*greatest, report, facts);
  report.cause = greatest;
  return report;
}

}  // namespace lockstep
