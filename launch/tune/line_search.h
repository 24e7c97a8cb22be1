// LineSearch: looks for the number with which something is fastest, by doubling and halving, and then between the best
// and its neighbours. Speeds rise up to one number and fall from there on, or stay as they are.
//
//   LineSearch search(4, 1, 64);
//   while (const std::optional<int64_t> threads = search.Next()) search.Add(*threads, SpeedWith(*threads));
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace lockstep {

class LineSearch {
 public:
  // Begins at `first`; least <= first <= most.
  LineSearch(int64_t first, int64_t least, int64_t most);

  // Returns the number to try next. Nothing: the search is at its end.
  std::optional<int64_t> Next() const;

  void Add(int64_t number, double speed) { speeds_[number] = speed; }

 private:
  int64_t first_, least_, most_;
  std::map<int64_t, double> speeds_;
};

}  // namespace lockstep
