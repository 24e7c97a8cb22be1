// FindFastest(): times several candidate plans for an operation on the GPU, and chooses the fastest.
//
// Protocol of FindFastest():
//   1. The proposed candidates are timed on the current stream one after the other, and then the neighbours of the best
//      candidates. The first candidate and the four fastest are timed again in turns. The whole search takes about 80
//      ms; for a slow operation it takes 48 times as long as the operation.
//   2. A candidate is chosen if it is at least 2 % faster than the first, gives the same result to within rounding,
//      and gives the same bits when it runs again. Otherwise the first is chosen.
//
// what can fail -> what the caller sees -> the test that shows it (trainer/ops/plan/plan_search_test.cc)
//   a candidate does not run -> it is passed over -> FindFastestTest.PassesOverWhatDoesNotRun
//   a candidate gives something else -> the first -> FindFastestTest.GivesTheSameToWithinRounding
//   a candidate does not always give the same bits -> the first -> FindFastestTest.GivesTheSameBitsEachTime
//   the first does not run -> c10::Error -> FindFastestTest.SaysThatTheFirstDoesNotRun
//   a candidate runs no more -> it is passed over -> FindFastestTest.PassesOverWhatRunsNoMore
//   none does -> c10::Error -> FindFastestTest.SaysThatNoneRunsAnyMore
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

// What candidates may take: as much as at::mm's products. A search takes it whole, where memory may be short.
inline constexpr int64_t kMostWorkspace_bytes = 32 << 20;

enum class PlanSource {
  kFirst,     // the library's first
  kSearched,  // by this process
  kFile,      // found by another process, or an earlier one
};

// Of the library "cuDNN": "cuDNN's first", "searched", "from the file".
std::string NameOf(PlanSource source, std::string_view library);

// What plans depend on: "NVIDIA H100 80GB HBM3, 132 multiprocessors, cuBLASLt 130101" of the library
// "cuBLASLt 130101".
std::string DeviceText(c10::DeviceIndex device, std::string_view library);

// Whether plans may not depend on time: at::globalContext() asks for deterministic algorithms.
bool MustBeDeterministic();

// Of candidates' times in microseconds, the first's first: which to take. It is the one with the least median
// if that is 2 % less than the first's; else the first, so that noise does not choose. A candidate without
// times could not run; throws c10::Error where none has any.
size_t ChooseCandidate(const std::vector<std::vector<double>>& times_us);

// There is one: at least one time.
double Median(std::vector<double> times);

// The plans for one operation, numbered from 0 on, which is the first.
class Candidates {
 public:
  virtual ~Candidates() = default;

  // Queues the operation on the current stream; false: the candidate does not run.
  virtual bool Run(size_t candidate) = 0;

  // Adds one that differs a little from `candidate`, and from all others at all; false: found none this time.
  virtual bool AddNeighbour(size_t candidate, std::minstd_rand& random) = 0;

  // Some of the values that it gives when it runs, as a new tensor of float32; undefined: it does not run.
  virtual at::Tensor Sample(size_t candidate) = 0;
};

// Microseconds; 0: not measured.
struct FastestCandidate {
  size_t candidate = 0;
  double us = 0;
  double first_us = 0;
};

// Of `proposed` candidates, and of those that are added.
FastestCandidate FindFastest(Candidates& candidates, size_t proposed);

}  // namespace lockstep::ops
