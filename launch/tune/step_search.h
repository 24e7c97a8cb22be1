// StepSearch: searches for the fastest way (StepWay) to make a training step, and says which way to time next.
//
//   StepSearch search({.accumulation = 1}, 64);
//   while (const std::optional<StepWay> way = search.Next()) search.Add(*way, way->accumulation, SpeedOf(*way));
//
// All ways have the same global batch. They differ in the number of micro-batches and in whether activation
// checkpointing is on. A step with fewer micro-batches is mostly faster, as long as memory suffices. But sometimes a
// step with more micro-batches is faster, because smaller micro-batches fit better into a processor's caches.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace lockstep {

struct StepWay {
  int64_t accumulation = 1;    // the number of micro-batches of a step
  bool checkpointing = false;  // the value of model.activation_checkpointing

  bool operator==(const StepWay&) const = default;
  auto operator<=>(const StepWay&) const = default;
};

class StepSearch {
 public:
  // `users` is the way that the user's config has. A step has at most `most` micro-batches.
  StepSearch(const StepWay& users, int64_t most);

  // Returns the way to time next; nothing if the search has ended.
  std::optional<StepWay> Next() const;

  // Adds the result of timing the way `asked`. `made_in` is the number of micro-batches with which the step ran. It is
  // greater than `asked.accumulation` if memory ran out, because the trainer then makes smaller micro-batches. A
  // `samples_per_s` of 0 says that even a step with `made_in` micro-batches takes too much memory.
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
