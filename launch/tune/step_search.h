// StepSearch: says which way to make a step to time next, until it knows the fastest.
//
//   StepSearch search({.accumulation = 1}, 64);
//   while (const std::optional<StepWay> way = search.Next()) search.Add(*way, way->accumulation, SpeedOf(*way));
//
// The global batch stays as it is. A way differs from another in the number of micro-batches and in activation
// checkpointing. Fewer micro-batches are mostly faster until memory runs out, but not always: more of them can fit better
// into a processor's caches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace lockstep {

struct StepWay {
  int64_t accumulation = 1;
  bool checkpointing = false;  // model.activation_checkpointing

  bool operator==(const StepWay&) const = default;
  auto operator<=>(const StepWay&) const = default;
};

class StepSearch {
 public:
  // A step has at most `most` micro-batches.
  StepSearch(const StepWay& users, int64_t most);

  // Returns the way to time next. Nothing: the search is at its end.
  std::optional<StepWay> Next() const;

  // Way `asked` makes `samples_per_s`. If memory ran out, the step was made in `made_in` micro-batches instead. A speed of
  // 0 says that `made_in` micro-batches cannot be used, because they take too much memory.
  void Add(const StepWay& asked, int64_t made_in, double samples_per_s);

 private:
  std::optional<double> SpeedOf(const StepWay& way) const;
  int64_t MostUnusable(bool checkpointing) const;
  double Best() const;

  StepWay users_;
  int64_t most_;
  std::map<StepWay, double> speeds_;
};

}  // namespace lockstep
