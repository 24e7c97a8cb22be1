// Verdict: says from the accounts of all ranks what a run loses its time to, and which config field gives it back.
//
// The ranks make their steps together, so they share a step's time. The rank that waits least for the others is the one
// for which the others wait, and its account is the job's:
//   communication  the time for which even that rank waits for the exchange
//   slow_rank      the time by which its computing exceeds the other ranks' mean
//   cores          the time in which its training thread was ready to run and had no core
//   reading, decoding, copying   the time for which it waits for samples, divided as the samples' time is
//   launching      the time in which the GPU was idle and nothing else is known to have kept it waiting
//   throttling     the part of the GPU's clock rate that heat or its power supply took away
//   other          the time by which its computing exceeds the 5th percentile of its steps, without the above
//
// Invariants:
//   1. ideal_s and all lost_s add up to wall_s.
//   2. There is no verdict before kLeastSteps steps and kLeastSeconds seconds, nor where no named loss is at least
//      kLeastShare of the wall time.
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

// The facts about a run on which its remedies depend. If ranks differ, those of rank 0.
struct RunFacts {
  bool on_gpu = false;
  bool launches_kernels = false;  // whether steps on a GPU run without a CUDA graph
  bool graph_is_off = false;      // whether the config says so
  std::string why_no_graph;
  std::string syncs;    // the operations of the forward pass that waited for the GPU; empty: none
  double gpu_use = -1;  // the fraction of the time in which a kernel ran; -1: unknown
  double throttled_share = 0;  // the fraction of its clock rate that the GPU lost to a fault
  int ranks_here = 1;          // the number of ranks on the machine
  int cores_here = 1;          // how many cores of the machine the job may use
  int cores = 1;               // how many cores a rank has to itself
  int loader_threads = 0;
  double preprocessing_s =
      0;  // the seconds in which the thread that trains scaled and augmented samples
  bool images = false;
  bool decodes_on_gpu = false;
  int64_t accumulation = 1;
  int64_t bucket_bytes = 0;
  int64_t gradient_bytes = 0;
  bool reduces_fp32 = true;
  int64_t checkpoint_every_steps = 0;
  int64_t checkpoint_every_epochs = 0;
  bool keeps_best =
      false;  // whether an evaluation may be followed by a checkpoint for which the next one waits
  double validation_fraction = 0;
};

// Judges the accounts of all ranks, which are in the order of the ranks. There must be at least one.
SecondsReport Judge(const std::vector<RankSeconds>& ranks, const RunFacts& facts);

}  // namespace lockstep
