// FindFastest(): times several candidate plans for an operation on the GPU, and chooses the fastest.
//
// Protocol of FindFastest():
//   1. The proposed candidates are timed on the current stream one after the other, and then the neighbours of the best
//      candidates. The first candidate and the four fastest are timed again in turns. The whole search takes about 80
//      ms, or, for a slow operation, 48 times as long as the operation.
//   2. A candidate is chosen if it is at least 2 % faster than the first, gives the same result to within rounding,
//      and gives the same bits when it runs again. Otherwise the first is chosen.
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

// The size of the workspace that a candidate may use, which is the same as for at::mm's products. A search always
// allocates a workspace of this size, even if memory is short.
inline constexpr int64_t kMostWorkspace_bytes = 32 << 20;

enum class PlanSource {
  kFirst,     // the plan that the library proposes first
  kSearched,  // found by a search of this process
  kFile,      // from the file: found by another process or in an earlier run
};

// Returns the source in words. For the library "cuDNN" these are "cuDNN's first", "searched" and "from the file".
std::string NameOf(PlanSource source, std::string_view library);

// Returns a text that names everything about the device and the library on which plans depend, for example "NVIDIA H100
// 80GB HBM3, 132 multiprocessors, cuBLASLt 130101" for the library "cuBLASLt 130101".
std::string DeviceText(c10::DeviceIndex device, std::string_view library);

// Returns whether at::globalContext() asks for deterministic algorithms, so that no plan may be chosen by its time.
bool MustBeDeterministic();

// Returns the index of the candidate to use. `times_us` has the times of each candidate in microseconds; candidate 0 is
// the library's first plan. The candidate with the smallest median is chosen if its median is at least 2 % smaller than
// candidate 0's. Otherwise candidate 0 is chosen, so that noise does not decide. A candidate without times could not
// run. Throws c10::Error if no candidate has times.
size_t ChooseCandidate(const std::vector<std::vector<double>>& times_us);

// Returns the median of at least one time.
double Median(std::vector<double> times);

// The candidate plans for one operation. Candidate 0 is the plan that the library proposes first.
class Candidates {
 public:
  virtual ~Candidates() = default;

  // Enqueues the operation on the current stream. Returns false if the candidate does not run.
  virtual bool Run(size_t candidate) = 0;

  // Adds a candidate that differs a little from `candidate` and is not equal to any existing candidate. Returns false
  // if this random attempt found none.
  virtual bool AddNeighbour(size_t candidate, std::minstd_rand& random) = 0;

  // Runs the candidate and returns some values of its result as a new float32 tensor. The tensor is undefined if the
  // candidate does not run.
  virtual at::Tensor Sample(size_t candidate) = 0;
};

// The result of a search: the chosen candidate, its time in microseconds, and the time of candidate 0. A time of 0
// means: not measured.
struct FastestCandidate {
  size_t candidate = 0;
  double us = 0;
  double first_us = 0;
};

// Finds the fastest of the first `proposed` candidates and of the neighbours that the search adds.
FastestCandidate FindFastest(Candidates& candidates, size_t proposed);

}  // namespace lockstep::ops
