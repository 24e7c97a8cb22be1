// Chooses the plans with which a process computes operations of one kind, such as matrix products. A plan is one of the
// ways in which a library can compute an operation. When an operation first occurs, its plan is looked up in a file
// (plan_file.h). If the file has no plan for the operation, a plan is searched for (plan_search.h) and written to the
// file.
//
// Protocol, for an operation that occurs for the first time:
//   1. A plan from the file is used if the library accepts it. The file is read once for each GPU, and read again
//      whenever this process writes a plan to it.
//   2. Otherwise the plan is searched for. If another process has searched at the same time and written its plan to
//      the file first, that plan is used.
//   3. If plans cannot be timed in this call, because a CUDA graph is being captured, or if the caller wants no search,
//      the library's first plan is used for this call. The next call may search. If a search fails (for example without
//      enough memory), or if the process has already made 256 searches for operations of this kind, the first plan is
//      used in all further calls. The same operation with another batch size, such as an epoch's short last batch,
//      counts as another operation.
//   4. If at::globalContext().deterministicAlgorithms() is true, no plan is timed or read from the file. The library's
//      first plan is used, which depends only on the operation, the GPU and the library's version.
//
// Determinism: all processes that share a file use the same plans from the first step on. A run that is resumed on the
// same machine therefore continues with the same bits. If there is no folder for the file, each process searches by
// itself. Ranks may then round differently, which does no harm: all ranks update their weights with the same sum of all
// ranks' gradients. But a resumed run then computes other bits than the run would have computed without an
// interruption. There are three more cases in which a resumed run computes other bits: after a search that failed,
// after 256 searches, and in a step that searches while activation checkpointing is on. In the last case, the first
// computation of a checkpointed block starts no search and uses the first plan, while a resumed run uses the plan in
// the file.
//
// A PlanChoices never destroys a plan: it keeps the first plan and the chosen plan of each operation.
//
// what can fail -> what the caller sees -> the test that shows it
//   a search fails, for example for lack of memory -> the first plan -> PlanChoicesTest.ASearchThatFailsGivesTheFirst
//   the library refuses a plan that was read from the file -> a new search -> PlanChoicesTest.ReplacesWhatIsOfNoUse
//   the library has no plan -> null -> PlanChoicesTest.ThereMayBeNone
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor/capturing.h"
#include "ops/plan/plan_file.h"
#include "ops/plan/plan_search.h"

namespace lockstep::ops {

// An operation that is to run on the current device and stream. Each library's planner implements this interface.
template <typename Plan>
class PlannedOperation {
 public:
  virtual ~PlannedOperation() = default;

  virtual bool CanBeTimed() { return !IsCapturing(); }

  // Returns the plan that the library proposes first, without any timing; nullopt if the library has no plan.
  virtual std::optional<Plan> First() = 0;

  // Searches for the fastest plan. Throws c10::Error if the search fails.
  virtual Plan Search(const Plan& first) = 0;

  // Text() converts a plan to the plan's text in the file, and Parsed() converts a text back to a plan. Parsed()
  // returns nullopt if the text is not a plan that the library accepts on the current device.
  virtual std::string Text(const Plan& plan) const = 0;
  virtual std::optional<Plan> Parsed(const std::string& text) = 0;
};

template <typename Key, typename Plan>
struct PlanReport {
  Key key;
  Plan plan;
  PlanSource source = PlanSource::kFirst;
};

// Chooses and keeps the plans of one kind of operation. Any number of threads may use one PlanChoices at the same time.
// The text of a key is Description(key).
template <typename Key, typename Plan>
class PlanChoices {
 public:
  // Makes choices that are kept in PlanFile(folder, kind, device_text(device)), where device_text() returns the text of
  // a GPU.
  PlanChoices(std::string folder, std::string_view kind,
              std::function<std::string(c10::DeviceIndex)> device_text)
      : folder_(std::move(folder)), kind_(kind), device_text_(std::move(device_text)) {}

  // Returns the plan with which to run the operation, or null if the library has no plan. The pointer stays valid as
  // long as the PlanChoices exists. `searches` says whether Choose() may search for a plan.
  const Plan* Choose(c10::DeviceIndex device, const Key& key, PlannedOperation<Plan>& operation,
                     bool searches) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[{device, key}];
    if (!MustBeDeterministic()) {
      if (!entry.chosen) LookUp(device, key, operation, entry);
      if (!entry.chosen && searches && operation.CanBeTimed())
        Search(device, key, operation, entry);
      if (entry.chosen) return &entry.chosen->plan;
    }
    return First(key, operation, entry);
  }

  // Returns the plan of each operation that has occurred: the chosen plan, or, if none was chosen, the first plan.
  // Operations for which the library has no plan are left out.
  std::vector<PlanReport<Key, Plan>> Reports() const {
    const std::lock_guard lock(mutex_);
    std::vector<PlanReport<Key, Plan>> reports;
    for (const auto& [key, entry] : entries_) {
      if (entry.chosen || entry.first) {
        reports.push_back(entry.chosen ? *entry.chosen : *entry.first);
      }
    }
    return reports;
  }

 private:
  static constexpr int kMostSearches = 256;

  struct Entry {
    std::optional<PlanReport<Key, Plan>> first;
    std::optional<PlanReport<Key, Plan>> chosen;
    bool looked_up = false;  // whether the plan was already looked for in the file
    bool has_none = false;
  };
  struct KeptPlans {
    PlanFile file;
    PlanTexts plans;  // the plans that the file had when it was last read
  };

  void LookUp(c10::DeviceIndex device, const Key& key, PlannedOperation<Plan>& operation,
              Entry& entry) {
    if (entry.looked_up) return;
    entry.looked_up = true;
    const PlanTexts& plans = KeptFor(device).plans;
    const auto kept = plans.find(Description(key));
    if (kept == plans.end()) return;
    if (const std::optional<Plan> plan = operation.Parsed(kept->second)) {
      entry.chosen = {key, *plan, PlanSource::kFile};
    }
  }

  const Plan* First(const Key& key, PlannedOperation<Plan>& operation, Entry& entry) {
    if (!entry.first && !entry.has_none) {
      const std::optional<Plan> first = operation.First();
      entry.has_none = !first;
      if (first) entry.first = {key, *first, PlanSource::kFirst};
    }
    return entry.first ? &entry.first->plan : nullptr;
  }

  void Search(c10::DeviceIndex device, const Key& key, PlannedOperation<Plan>& operation,
              Entry& entry) {
    const Plan* const first = First(key, operation, entry);
    if (first == nullptr) return;
    entry.chosen = entry.first;
    if (searches_ == kMostSearches) return;
    ++searches_;
    try {
      entry.chosen->plan = operation.Search(*first);
    } catch (const c10::Error&) {
      return;
    }
    entry.chosen->source = PlanSource::kSearched;
    const std::string searched = operation.Text(entry.chosen->plan);
    auto& [file, plans] = KeptFor(device);
    std::optional<Plan> kept;
    plans = file.Keep(Description(key), searched, [&](const std::string& text) {
      kept = operation.Parsed(text);
      return kept.has_value();
    });
    if (!kept || operation.Text(*kept) == searched) return;
    entry.chosen->plan = *kept;
    entry.chosen->source = PlanSource::kFile;
  }

  KeptPlans& KeptFor(c10::DeviceIndex device) {
    auto it = kept_.find(device);
    if (it == kept_.end()) {
      const PlanFile file(folder_, kind_, device_text_(device));
      it = kept_.emplace(device, KeptPlans{file, file.Read()}).first;
    }
    return it->second;
  }

  const std::string folder_;
  const std::string kind_;
  const std::function<std::string(c10::DeviceIndex)> device_text_;
  mutable std::mutex mutex_;  // guards all members below
  std::map<std::pair<c10::DeviceIndex, Key>, Entry> entries_;
  std::map<c10::DeviceIndex, KeptPlans> kept_;
  int searches_ = 0;
};

}  // namespace lockstep::ops
