// LargestSearch: finds the largest number (for example of samples in memory) that fits, to within 3 %. It assumes that
// if a number does not fit, no larger number fits. The search begins at a guess and moves away from the guess by steps
// that double, until it knows a number that fits and a number that does not fit. The search then bisects the range
// between these two numbers.
//
//   LargestSearch search(96, 4096);
//   while (const std::optional<int64_t> samples = search.Next()) search.Add(*samples, Fits(*samples));
//   search.largest();
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

class LargestSearch {
 public:
  static constexpr double kWithin = 0.03;

  // Next() gives only numbers from 1 to `most`. A `guess` outside of that range is clamped to the range.
  LargestSearch(int64_t guess, int64_t most);

  // Returns the number to try next; nothing if the search has ended.
  std::optional<int64_t> Next() const;

  // Adds the result of trying `number`, which may be one that Next() has not returned.
  void Add(int64_t number, bool fits);

  int64_t largest() const { return fits_; }  // the largest number that fits so far; 0: none

 private:
  int64_t guess_;
  bool guessed_ = false;  // the guess was tried
  int64_t step_;
  int64_t fits_ = 0;
  int64_t too_many_;          // the least number that did not fit, or `most` + 1 if all fitted
  bool one_did_not_ = false;  // a number that was tried did not fit
};

}  // namespace lockstep
