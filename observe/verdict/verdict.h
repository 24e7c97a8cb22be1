// Verdict: says from the accounts of all ranks what a run loses its time to, and which config field gives it back.
//
// The ranks make their steps together, so they share a step's time. The rank that waits least for the others is the one
// that the others wait for, and its account is the job's:
//   communication  what even that rank waits for the exchange
//   slow_rank      what its computing takes beyond the other ranks' mean
//   cores          what its training thread was ready to run and had no core
//   reading, decoding, copying   what it waits for samples, cut by where the samples' time went
//   other          what its computing takes beyond the 5th percentile of its steps, without the above
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

// What of a run its remedies depend on. Of rank 0, where ranks differ.
struct RunFacts {
  bool on_gpu = false;
  int ranks_here = 1;  // on the machine
  int cores_here = 1;  // of the machine that the job may use
  int cores = 1;       // that a rank has to itself
  int loader_threads = 0;
  double preprocessing_s = 0;  // that the thread that trains has scaled and augmented samples
  bool images = false;
  bool decodes_on_gpu = false;
  std::string why_no_graph;
  int64_t accumulation = 1;
  int64_t bucket_bytes = 0;
  int64_t gradient_bytes = 0;
  bool reduces_fp32 = true;
  int64_t checkpoint_every_steps = 0;
  int64_t checkpoint_every_epochs = 0;
  double validation_fraction = 0;
};

// `ranks`: of all ranks, in their order; not empty.
SecondsReport Judge(const std::vector<RankSeconds>& ranks, const RunFacts& facts);

}  // namespace lockstep
