#include "ops/plan/plan_search.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <tuple>
#include <utility>

namespace lockstep::ops {
namespace {

// A candidate counts as faster if its time divided by the first candidate's time is at most this number.
constexpr double kFasterShare = 0.98;
// The maximum difference between a candidate's and the first candidate's results, as a share of the greatest absolute
// value of the first candidate's result. This share is about 2.5 times the maximum relative error of rounding to
// bfloat16.
constexpr double kSameWithin = 0.01;

constexpr int kNeighbours = 96;   // the maximum number of attempts to add a neighbour
constexpr size_t kParents = 4;    // the number of best candidates whose neighbours are tried
constexpr size_t kFinalists = 5;  // the maximum number of candidates that are timed in turns

// The time limit of a search is kSearch_us, or the time of kSearchRuns runs of the first candidate if that is longer.
constexpr double kSearch_us = 80e3;
constexpr double kSearchRuns = 48;
// The shares of the time limit after which a search times no more proposals (kProposalsEnd) and no more neighbours
// (kNeighboursEnd).
constexpr double kProposalsEnd = 0.45;
constexpr double kNeighboursEnd = 0.65;

class Search {
 public:
  explicit Search(Candidates& candidates) : candidates_(candidates) {}

  FastestCandidate Fastest(size_t proposed) {
    // GPU work that was enqueued before the search must not count as the search's time.
    C10_CUDA_CHECK(cudaStreamSynchronize(at::cuda::getCurrentCUDAStream()));
    begin_ = std::chrono::steady_clock::now();
    // The time of the second measurement is used, because the first measurement includes the time in which the GPU
    // wakes up.
    std::ignore = TimeOnce(0);
    const std::optional<double> first_us = TimeOnce(0);
    TORCH_CHECK(first_us, "the plan that was proposed first does not run");
    limit_us_ = std::max(kSearch_us, kSearchRuns * *first_us);
    // If the first candidate is fast, each measurement has several runs, because the GPU's clock has steps of half a
    // microsecond.
    repeats_ = std::clamp(static_cast<int>(100 / std::max(1.0, *first_us)), 1, 10);
    times_us_ = {{*first_us, 0}};
    for (size_t i = 1; i < proposed && Elapsed_us() < kProposalsEnd * limit_us_; ++i) Time(i);
    TimeNeighbours(proposed);

    std::vector<size_t> finalists = {0};
    std::ranges::sort(times_us_);
    for (const auto& [us, candidate] : times_us_) {
      if (candidate != 0 && finalists.size() < kFinalists) finalists.push_back(candidate);
    }
    const std::vector<std::vector<double>> times = TimeInTurns(finalists);
    size_t chosen = ChooseCandidate(times);
    if (chosen != 0 && !GivesTheSame(finalists[chosen])) chosen = 0;
    const auto median = [&](size_t of) { return times[of].empty() ? 0 : Median(times[of]); };
    return {.candidate = finalists[chosen], .us = median(chosen), .first_us = median(0)};
  }

 private:
  double Elapsed_us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_)
        .count();
  }

  bool Run(size_t candidate) {
    if (candidates_.Run(candidate)) return true;
    std::ignore = cudaGetLastError();  // clears CUDA's last error, which this candidate caused
    return false;
  }

  // Returns the candidate's Sample(), or an undefined tensor if the candidate does not run.
  at::Tensor Sample(size_t candidate) {
    at::Tensor sample = candidates_.Sample(candidate);
    if (!sample.defined()) std::ignore = cudaGetLastError();
    return sample;
  }

  // Returns the time of one run in microseconds, as the mean of repeats_ runs. Returns nullopt if the candidate does
  // not run. A run before the timed runs loads the kernel, and keeps the GPU busy while the host enqueues the timed
  // runs.
  std::optional<double> TimeOnce(size_t candidate) {
    at::cuda::CUDAEvent begin(cudaEventDefault);
    at::cuda::CUDAEvent end(cudaEventDefault);
    if (!Run(candidate)) return std::nullopt;
    begin.record();
    for (int i = 0; i < repeats_; ++i) {
      if (!Run(candidate)) return std::nullopt;
    }
    end.record();
    end.synchronize();
    return begin.elapsed_time(end) * 1e3 / repeats_;
  }

  void Time(size_t candidate) {
    if (const std::optional<double> us = TimeOnce(candidate)) {
      times_us_.emplace_back(*us, candidate);
    }
  }

  void TimeNeighbours(size_t next) {
    std::minstd_rand random(1);  // a fixed seed: each search draws the same random numbers
    for (int i = 0; i < kNeighbours && Elapsed_us() < kNeighboursEnd * limit_us_; ++i) {
      std::ranges::sort(times_us_);
      const size_t parent = times_us_[random() % std::min(kParents, times_us_.size())].second;
      if (candidates_.AddNeighbour(parent, random)) Time(next++);
    }
  }

  // Returns the times of each finalist in microseconds. The finalists run in turns, so that a change of the GPU's clock
  // rate affects all of them. All runs are enqueued without a wait in between, so that the GPU never waits for the
  // host.
  std::vector<std::vector<double>> TimeInTurns(const std::vector<size_t>& finalists) {
    double turn_us = 0;
    for (const auto& [us, candidate] : times_us_) {
      if (std::ranges::find(finalists, candidate) != finalists.end()) turn_us += us * repeats_;
    }
    const int turns =
        std::clamp(static_cast<int>((limit_us_ - Elapsed_us()) / turn_us), /*lo=*/3, /*hi=*/21);
    std::vector<at::cuda::CUDAEvent> events;
    for (size_t i = 0; i < turns * finalists.size() + 1; ++i) events.emplace_back(cudaEventDefault);
    std::ignore = Run(0);
    size_t event = 0;
    events[event++].record();
    std::vector<bool> fails(finalists.size());
    for (int turn = 0; turn < turns; ++turn) {
      for (size_t i = 0; i < finalists.size(); ++i) {
        for (int run = 0; run < repeats_; ++run) {
          if (!Run(finalists[i])) fails[i] = true;
        }
        events[event++].record();
      }
    }
    events.back().synchronize();
    std::vector<std::vector<double>> times(finalists.size());
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      const size_t finalist = i % finalists.size();
      if (fails[finalist]) continue;
      times[finalist].push_back(events[i].elapsed_time(events[i + 1]) * 1e3 / repeats_);
    }
    return times;
  }

  // Returns whether the candidate gives the first candidate's result to within kSameWithin, and the same bits in two
  // runs. Values that are not finite, such as a gradient that has overflowed, are not compared with the first
  // candidate's.
  bool GivesTheSame(size_t candidate) {
    const at::Tensor first = Sample(0);
    const at::Tensor once = Sample(candidate);
    const at::Tensor again = Sample(candidate);
    if (!first.defined() || !once.defined() || !again.defined()) return false;
    const at::Tensor finite = first.isfinite().logical_and(once.isfinite());
    const at::Tensor expected = first.where(finite, 0);
    const at::Tensor difference = (once.where(finite, 0) - expected).abs().max();
    return (difference <= kSameWithin * expected.abs().max()).item<bool>() &&
           at::equal(once.view(at::kInt), again.view(at::kInt));
  }

  Candidates& candidates_;
  std::chrono::steady_clock::time_point begin_;
  double limit_us_ = 0;
  int repeats_ = 1;
  std::vector<std::pair<double, size_t>> times_us_;  // {time in microseconds, candidate}
};

}  // namespace

std::string NameOf(PlanSource source, std::string_view library) {
  switch (source) {
    case PlanSource::kSearched:
      return "searched";
    case PlanSource::kFile:
      return "from the file";
    case PlanSource::kFirst:
      break;
  }
  return fmt::format("{}'s first", library);
}

std::string DeviceText(c10::DeviceIndex device, std::string_view library) {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device);
  return fmt::format("{}, {} multiprocessors, {}", properties->name,
                     properties->multiProcessorCount, library);
}

bool MustBeDeterministic() { return at::globalContext().deterministicAlgorithms(); }

double Median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

size_t ChooseCandidate(const std::vector<std::vector<double>>& times_us) {
  std::optional<size_t> best;
  double best_us = 0;
  for (size_t i = 0; i < times_us.size(); ++i) {
    if (times_us[i].empty()) continue;
    const double us = Median(times_us[i]);
    if (!best || us < best_us) {
      best = i;
      best_us = us;
    }
  }
  TORCH_CHECK(best, "none of ", times_us.size(), " plans that were to be timed runs");
  const bool stays = !times_us[0].empty() && best_us > kFasterShare * Median(times_us[0]);
  return stays ? 0 : *best;
}

FastestCandidate FindFastest(Candidates& candidates, size_t proposed) {
  return Search(candidates).Fastest(proposed);
}

}  // namespace lockstep::ops
