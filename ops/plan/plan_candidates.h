// PlanCandidates: presents a library's plans as the candidates of a search (plan_search.h). The searches for matrix
// products and for convolutions share this code.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/memory_scope.h"
#include "ops/plan/plan_search.h"

namespace lockstep::ops {

// The type Plan must have the fields `us` and `first_us`, and a function RunsAs(other) that says whether two plans
// compute in the same way.
template <typename Plan>
class PlanCandidates : public Candidates {
 public:
  // Times the first plan, the library's proposals (`proposals`), and neighbours of the fastest plans. Returns the plan
  // that FindFastest() chooses, with its time and the first plan's time. Throws c10::Error if the first plan does not
  // run, or if later none of the fastest plans runs any more.
  Plan Fastest(const std::vector<Plan>& proposals) {
    for (const Plan& plan : proposals) Add(plan);
    const FastestCandidate found = FindFastest(*this, plans_.size());
    Plan fastest = plans_[found.candidate];
    fastest.us = found.us;
    fastest.first_us = found.first_us;
    return fastest;
  }

 protected:
  explicit PlanCandidates(const Plan& first) : plans_{first}, workspace_(MakeWorkspace()) {}

  // Adds `plan` to the candidates and returns true, or returns false if RunsAs() is true for `plan` and a candidate.
  bool Add(const Plan& plan) {
    const bool is_known =
        std::ranges::any_of(plans_, [&](const Plan& known) { return known.RunsAs(plan); });
    if (!is_known) plans_.push_back(plan);
    return !is_known;
  }

  Plan& operator[](size_t candidate) { return plans_[candidate]; }

  // Returns a workspace of kMostWorkspace_bytes, which one candidate at a time may use.
  void* workspace() const { return workspace_.get(); }

 private:
  static c10::DataPtr MakeWorkspace() {
    const MemoryScope scope(MemoryOwner::kWorkspaces);
    return c10::cuda::CUDACachingAllocator::get()->allocate(kMostWorkspace_bytes);
  }

  std::vector<Plan> plans_;
  c10::DataPtr workspace_;
};

}  // namespace lockstep::ops
