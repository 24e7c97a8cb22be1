// Verdict: finds from the ledgers of all ranks what a run loses its time to, and which config field regains the time.
//
// All ranks make a step together, so the step takes the same time on each of them. The rank that waits least for the
// other ranks is the rank for which the other ranks wait. The losses of the job are computed from the ledger of this
// rank, called the critical rank below:
//   communication  the time for which the critical rank still waits for the exchange with other ranks, and no rank
//                  waits for a core
//   slow_rank      the time by which the critical rank's computing time exceeds the mean of the other ranks
//   cores          the time in which the critical rank's training thread was ready to run and had no core; and the time
//                  for which it waited for other ranks because they, or the thread of a rank that exchanges data, were
//                  ready to run and had no core
//   reading, decoding, copying   the time for which the critical rank waits for samples, split by the share that the
//                  loader measured for each
//   launching      the time in which the GPU was idle for no other known reason
//   throttling     the time lost because heat or the power supply reduced the GPU's clock rate
//   other          the time by which the critical rank's computing time exceeds the 5th percentile of the rank's
//                  steps, without the losses above
//
// Invariants:
//   1. ideal_s and all lost_s add up to wall_s.
//   2. There is a verdict only after kLeastSteps steps and kLeastSeconds seconds, and only if at least one loss other
//      than `other` is at least kLeastShare of the wall time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/verdict/ledger.h"
#include "observe/verdict/seconds_report.h"

namespace lockstep {

inline constexpr int64_t kLeastSteps = 20;
inline constexpr double kLeastSeconds = 2;
inline constexpr double kLeastShare = 0.05;

// The facts about a run on which the remedies depend. If the facts differ between ranks, these are the facts of rank 0.
struct RunFacts {
  bool on_gpu = false;
  bool launches_kernels = false;  // whether steps on a GPU run without a CUDA graph
  bool graph_is_off = false;      // whether the config turns CUDA graphs off
  std::string why_no_graph;
  std::string syncs;    // the operations of the forward pass that waited for the GPU; empty: none
  double gpu_use = -1;  // the fraction of the time in which a kernel ran; -1: unknown
  double throttled_share = 0;  // the fraction of the GPU's clock rate lost to heat or power
  int ranks_here = 1;          // the number of ranks on the machine
  int cores_here = 1;          // how many cores of the machine the job may use
  int cores = 1;               // how many cores each rank has for itself
  int loader_threads = 0;
  // The seconds in which the training thread scaled and augmented samples.
  double preprocessing_s = 0;
  bool images = false;
  bool decodes_on_gpu = false;
  int64_t accumulation = 1;
  int64_t bucket_bytes = 0;
  int64_t gradient_bytes = 0;
  bool reduces_fp32 = true;
  int64_t checkpoint_every_steps = 0;
  int64_t checkpoint_every_epochs = 0;
  // Whether the run saves a checkpoint after an evaluation (checkpoint.keep_best).
  bool keeps_best = false;
  double validation_fraction = 0;
};

// Returns a report from the sums of the ledgers of all ranks, in the order of the ranks. There must be at least one
// rank.
SecondsReport Judge(const std::vector<RankSeconds>& ranks, const RunFacts& facts);

}  // namespace lockstep
