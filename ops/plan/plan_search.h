// FindFastest(): times several candidate plans for an operation on the GPU, and chooses the fastest.
//
// Protocol of FindFastest():
//   1. The proposed candidates are timed on the current stream one after the other, and then the neighbours of the best
//      candidates. The first candidate and the four fastest other candidates are timed again in turns. The whole search
//      takes about 80 ms, or, for a slow operation, about 48 times as long as the first candidate.
//   2. The fastest candidate is chosen if it takes at most 98 % of the first candidate's time, gives the same result as
//      the first candidate to within rounding, and gives the same bits in a second run. Otherwise the first
//      candidate is chosen.
//
// what can fail -> what the caller sees -> the test that shows it (ops/plan/plan_search_test.cc)
//   a candidate does not run -> the candidate is skipped -> FindFastestTest.PassesOverWhatDoesNotRun
//   a candidate gives another result than the first -> the first is chosen
//     -> FindFastestTest.GivesTheSameToWithinRounding
//   a candidate does not always give the same bits -> the first is chosen -> FindFastestTest.GivesTheSameBitsEachTime
//   the first candidate does not run -> c10::Error -> FindFastestTest.SaysThatTheFirstDoesNotRun
//   a candidate that ran before fails -> the candidate is skipped -> FindFastestTest.PassesOverWhatRunsNoMore
//   all candidates that ran before fail -> c10::Error -> FindFastestTest.SaysThatNoneRunsAnyMore
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ops {

// The maximum size of a candidate's workspace, which is also the size of at::mm's workspace on Hopper GPUs. A search
// always allocates a workspace of this size, even if memory is short.
inline constexpr int64_t kMostWorkspace_bytes = 32 << 20;

enum class PlanSource {
  kFirst,     // the plan that the library proposes first
  kSearched,  // the plan that a search of this process found
  kFile,      // a plan from the file, found by another process or in an earlier run
};

// Returns the name of the source: for the library "cuDNN", one of "cuDNN's first", "searched" and "from the file".
std::string NameOf(PlanSource source, std::string_view library);

// Returns a text that names the properties of the device and the library on which plans depend, for example "NVIDIA
// H100 80GB HBM3, 132 multiprocessors, cuBLASLt 130101" for the library "cuBLASLt 130101".
std::string DeviceText(c10::DeviceIndex device, std::string_view library);

// Returns whether at::globalContext() asks for deterministic algorithms. In this case no plan may be chosen by its
// time, which differs from run to run.
bool MustBeDeterministic();

// Returns the index of the candidate to use. `times_us` has the times of each candidate in microseconds; candidate 0 is
// the library's first plan. The candidate with the smallest median is chosen if this median is at most 98 % of
// candidate 0's median, or if candidate 0 has no times. Otherwise candidate 0 is chosen, so that noise does not decide.
// A candidate that could not run has no times. Throws c10::Error if no candidate has times.
size_t ChooseCandidate(const std::vector<std::vector<double>>& times_us);

// Returns the median of `times`, which must not be empty.
double Median(std::vector<double> times);

// The candidate plans for one operation. Candidate 0 is the plan that the library proposes first.
class Candidates {
 public:
  virtual ~Candidates() = default;

  // Enqueues the operation on the current stream. Returns false if the candidate does not run.
  virtual bool Run(size_t candidate) = 0;

  // Adds a random candidate that differs a little from `candidate`. Returns false if the random candidate is invalid or
  // already exists; none is added then.
  virtual bool AddNeighbour(size_t candidate, std::minstd_rand& random) = 0;

  // Runs the candidate and returns some values of the candidate's result as a new float32 tensor. The tensor is
  // undefined if the candidate does not run.
  virtual at::Tensor Sample(size_t candidate) = 0;
};

// The result of a search: the chosen candidate, the chosen candidate's time and the time of candidate 0, both in
// microseconds. A time is 0 if it was not measured.
struct FastestCandidate {
  size_t candidate = 0;
  double us = 0;
  double first_us = 0;
};

// Chooses one of the first `proposed` candidates and of the neighbours that the search adds, by the protocol above.
FastestCandidate FindFastest(Candidates& candidates, size_t proposed);

}  // namespace lockstep::ops
