// LineSearch: looks for the number (for example of threads) with which something is fastest. It first doubles and
// halves the number, and then tries numbers between the best number and its nearest neighbours among the numbers that
// were tried. It assumes that the speed rises up to one number, and does not rise after that number.
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
  // Makes a search among the numbers from `least` to `most` that begins at `first`; least <= first <= most.
  LineSearch(int64_t first, int64_t least, int64_t most);

  // Returns the number to try next; nothing if the search has ended.
  std::optional<int64_t> Next() const;

  // Adds the speed that was measured with `number`.
  void Add(int64_t number, double speed) { speeds_[number] = speed; }

 private:
  int64_t first_, least_, most_;
  std::map<int64_t, double> speeds_;
};

}  // namespace lockstep
