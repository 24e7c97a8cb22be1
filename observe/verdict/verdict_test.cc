#include "observe/verdict/verdict.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lockstep {
namespace {

// Returns the sums of a rank that made 10,000 steps of a millisecond each and lost no time to a known cause.
RankSeconds Healthy() { return {.steps = 10'000, .wall_s = 10, .ideal_s = 9.5, .computed_s = 10}; }

RankSeconds With(Loss loss, double seconds) {
  RankSeconds rank = Healthy();
  rank.computed_s -= seconds;
  rank.ideal_s = 0.95 * rank.computed_s;
  rank.lost(loss) = seconds;
  return rank;
}

void ExpectAddsUp(const SecondsReport& report) {
  const double lost = std::accumulate(report.lost_s.begin(), report.lost_s.end(), 0.0);
  EXPECT_NEAR(report.ideal_s + lost, report.wall_s, 1e-9);
}

TEST(Verdict, AHealthyRunGetsNone) {
  const SecondsReport report = Judge({Healthy(), Healthy()}, {});
  ExpectAddsUp(report);
  EXPECT_FALSE(report.cause);
  EXPECT_EQ(report.verdict, "");
  EXPECT_EQ(report.remedy, "");
}

TEST(Verdict, NamesTheGreatestLossAndTheFieldThatMendsIt) {
  // A ledger counts all the waiting for samples as kReading. `reading_share` is the fraction of this waiting that was
  // spent on reading.
  RankSeconds rank = With(Loss::kReading, 6);
  rank.reading_share = 0.1;
  const SecondsReport report = Judge({rank}, {.cores = 8, .loader_threads = 2});
  ExpectAddsUp(report);
  EXPECT_EQ(report.cause, Loss::kDecoding);
  EXPECT_EQ(report.verdict, "38 % of this machine's own speed; lost 54 % to decoding samples");
  EXPECT_EQ(report.remedy, "loader.threads: 2 -> 5");
}

TEST(Verdict, MoreThreadsThanCoresAreNoRemedy) {
  RankSeconds rank = With(Loss::kReading, 6);
  EXPECT_EQ(Judge({rank}, {.cores = 2, .loader_threads = 2}).remedy,
            "smaller samples (lockstep prepare), or more cores for each rank");
  EXPECT_EQ(Judge({rank}, {.on_gpu = true, .cores = 2, .loader_threads = 2, .images = true}).remedy,
            "data.images.decode: GPU");
}

TEST(Verdict, ASlowRankIsTheOneThatWaitsLeast) {
  // Rank 1 computes for 8 of 10 seconds, and the other ranks compute for 5 seconds.
  const SecondsReport report = Judge(
      {With(Loss::kCommunication, 5), With(Loss::kCommunication, 2), With(Loss::kCommunication, 5)},
      {});
  ExpectAddsUp(report);
  EXPECT_EQ(report.cause, Loss::kSlowRank);
  EXPECT_EQ(report.slow_rank, 1);
  EXPECT_NEAR(report.lost_s[static_cast<size_t>(Loss::kSlowRank)], 3, 1e-9);
  EXPECT_NEAR(report.lost_s[static_cast<size_t>(Loss::kCommunication)], 2, 1e-9);
}

TEST(Verdict, WhatAllRanksWaitForIsCommunication) {
  const SecondsReport report = Judge({With(Loss::kCommunication, 5), With(Loss::kCommunication, 5)},
                                     {.bucket_bytes = 4096, .gradient_bytes = 1 << 20});
  EXPECT_EQ(report.cause, Loss::kCommunication);
  EXPECT_EQ(report.remedy, "ddp.bucket_bytes: 4096 -> 26214400");
}

TEST(Verdict, WaitingForACoreIsNotARanksOwnSlowness) {
  RankSeconds starved = With(Loss::kCommunication, 1);
  starved.core_wait_s = 4;
  const SecondsReport report =
      Judge({With(Loss::kCommunication, 5), starved}, {.ranks_here = 2, .cores_here = 1});
  ExpectAddsUp(report);
  EXPECT_EQ(report.cause, Loss::kCores);
  EXPECT_EQ(report.remedy, "2 ranks share 1 cores: start 1 (-n 1)");
}

TEST(Verdict, WaitingForARankThatWaitsForACoreIsNoCommunication) {
  // Each rank waits for a core for 4 s, but never while the other rank does, so each waits 4 s for the other.
  RankSeconds rank = With(Loss::kCommunication, 5);
  rank.running_s = 1;
  rank.core_wait_s = 4;
  const SecondsReport report = Judge({rank, rank}, {.ranks_here = 2, .cores_here = 2});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kCores), 8, 1e-9);
  EXPECT_NEAR(report.lost(Loss::kCommunication), 1, 1e-9);
  EXPECT_EQ(report.cause, Loss::kCores);
  EXPECT_EQ(report.remedy,
            "other processes use this machine's cores, or loader.threads is too high");
}

TEST(Verdict, AnExchangeThatWaitsForACoreIsNoCommunication) {
  // The exchange waits for the core of one rank's thread, whichever rank is the critical one.
  RankSeconds starved = With(Loss::kCommunication, 7);
  starved.running_s = 3;
  starved.exchange_core_wait_s = 6;
  RankSeconds other = With(Loss::kCommunication, 6.5);
  other.running_s = 3.5;
  const SecondsReport report = Judge({starved, other}, {.ranks_here = 2, .cores_here = 2});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kCores), 6, 1e-9);
  EXPECT_NEAR(report.lost(Loss::kCommunication), 0.5, 1e-9);
  EXPECT_EQ(report.cause, Loss::kCores);
}

TEST(Verdict, NoMoreIsWaitingForACoreThanWasWaited) {
  RankSeconds rank = With(Loss::kCommunication, 2);
  rank.running_s = 8;
  rank.exchange_core_wait_s = 50;
  const SecondsReport report = Judge({rank, rank}, {.ranks_here = 2, .cores_here = 2});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kCores), 2, 1e-9);
}

TEST(Verdict, WaitingForACoreAfterAWaitForOthersCountsOnce) {
  RankSeconds rank = With(Loss::kCommunication, 6);
  rank.running_s = 3.5;
  // The computing time is 10 - 6 = 4 s, of which the thread ran for 3.5 s, so only 0.5 s of core_wait_s lie in the
  // computing time. The other 4.5 s were measured as waiting for other ranks.
  rank.core_wait_s = 5;
  const SecondsReport report = Judge({rank}, {});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kCores), 5, 1e-9);
  EXPECT_NEAR(report.lost(Loss::kCommunication), 1.5, 1e-9);
  EXPECT_EQ(report.cause, Loss::kCores);
}

TEST(Verdict, AThreadThatReadsItsSamplesItselfWaitsForACoreThereToo) {
  RankSeconds rank = With(Loss::kReading, 5);
  rank.running_s = 4;
  rank.core_wait_s = 6;
  const SecondsReport report = Judge({rank}, {.loader_threads = 0});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kCores), 6, 1e-9);
  EXPECT_NEAR(report.lost(Loss::kDecoding), 2, 1e-9);
  EXPECT_EQ(report.cause, Loss::kCores);
}

TEST(Verdict, CheckpointsAreToBecomeRareEnough) {
  const SecondsReport report = Judge({With(Loss::kCheckpoints, 2)}, {.checkpoint_every_steps = 10});
  EXPECT_EQ(report.cause, Loss::kCheckpoints);
  EXPECT_EQ(report.remedy, "checkpoint.every_steps: 10 -> 250");
}

TEST(Verdict, AFewStepsSayNothing) {
  RankSeconds rank = With(Loss::kEvaluation, 9);
  rank.steps = kLeastSteps - 1;
  EXPECT_FALSE(Judge({rank}, {}).cause);
}

TEST(Verdict, AGpuThatIsIdleForNoOtherReasonWaitsForTheHost) {
  const SecondsReport report =
      Judge({With(Loss::kReading, 1)},
            {.on_gpu = true, .launches_kernels = true, .why_no_graph = "dropout", .gpu_use = 0.6});
  ExpectAddsUp(report);
  EXPECT_EQ(report.cause, Loss::kLaunching);
  EXPECT_NEAR(report.lost(Loss::kLaunching), 10 * 0.4 - 1, 1e-9);
  EXPECT_EQ(report.remedy, "steps run without a CUDA graph (dropout)");
  EXPECT_EQ(Judge({Healthy()},
                  {.on_gpu = true, .launches_kernels = true, .syncs = "aten::item", .gpu_use = 0.6})
                .remedy,
            "the model waits for the GPU in aten::item: keep its values on the GPU");
}

TEST(Verdict, ABusyGpuWaitsForNothing) {
  EXPECT_FALSE(
      Judge({Healthy()}, {.on_gpu = true, .launches_kernels = true, .gpu_use = 0.97}).cause);
  EXPECT_FALSE(
      Judge({Healthy()}, {.on_gpu = true, .gpu_use = 0.6}).cause);  // a CUDA graph has no gaps
}

TEST(Verdict, AStepWithoutGapsSaysHowMuchLaunchingTakes) {
  RankSeconds rank = Healthy();
  rank.unbroken_s = 0.4 * rank.computed_s;
  const SecondsReport report = Judge(
      {rank}, {.on_gpu = true, .launches_kernels = true, .graph_is_off = true, .gpu_use = 0.8});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.ideal_s, 0.95 * 4, 1e-9);
  // The variation of the host's time, 0.05 * 4 s, counts as launching, too.
  EXPECT_NEAR(report.lost(Loss::kLaunching), 6 + 0.05 * 4, 1e-9);
  EXPECT_NEAR(report.lost(Loss::kOther), 0, 1e-9);
  EXPECT_EQ(report.remedy, "graph: true");
}

TEST(Verdict, CopiesThatAreQueuedLateAreALossOfLaunching) {
  RankSeconds rank = With(Loss::kReading, 1);
  rank.copying_share = 1;
  rank.unbroken_s = 0.5 * rank.computed_s;
  const SecondsReport report = Judge({rank}, {.on_gpu = true, .launches_kernels = true});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kLaunching), 0.5 * 9 + 1 + 0.05 * 4.5, 1e-9);
  EXPECT_EQ(report.lost(Loss::kCopying), 0);
}

TEST(Verdict, ABusyGpuDoesNotMindThatItsHostWaitsForACore) {
  RankSeconds rank = Healthy();
  rank.running_s = 6;
  rank.core_wait_s = 4;
  EXPECT_FALSE(Judge({rank}, {.on_gpu = true, .loader_threads = 2}).cause);
  rank.unbroken_s = 0.7 * rank.computed_s;
  const SecondsReport report =
      Judge({rank}, {.on_gpu = true, .launches_kernels = true, .loader_threads = 2});
  ExpectAddsUp(report);
  EXPECT_NEAR(report.lost(Loss::kCores), 3, 1e-9);
  EXPECT_NEAR(report.lost(Loss::kLaunching), 0, 1e-9);
}

TEST(Verdict, AGpuThatHeatSlowsDownLosesThatPartOfItsClockRate) {
  const SecondsReport report =
      Judge({Healthy()}, {.on_gpu = true, .gpu_use = 1, .throttled_share = 0.2});
  ExpectAddsUp(report);
  EXPECT_EQ(report.cause, Loss::kThrottling);
  EXPECT_NEAR(report.lost(Loss::kThrottling), 2, 1e-9);
}

}  // namespace
}  // namespace lockstep
