// LargestSearch: finds the largest number that fits, to within 3 %, if larger ones fit less. Begins at a guess, and goes
// away from it by steps that double until one number fits and one does not; then halves what lies between.
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

  // Next() gives only numbers from 1 to `most`. A `guess` outside of that range is clamped to it.
  LargestSearch(int64_t guess, int64_t most);

  // Returns the number to try next. Nothing: the search is at its end.
  std::optional<int64_t> Next() const;

  void Add(int64_t number, bool fits);

  int64_t largest() const { return fits_; }  // that is known to fit; 0: none

 private:
  int64_t guess_;
  bool guessed_ = false;  // the guess was tried
  int64_t step_;
  int64_t fits_ = 0;
  int64_t too_many_;  // the least that is known not to fit, or that is not tried
  bool one_did_not_ = false;
};

}  // namespace lockstep
