// WorkProgress: shows the user how far `lockstep prepare` has come. On a terminal it redraws one line; elsewhere it
// prints plain lines.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "base/live_line.h"

namespace lockstep {

class WorkProgress {
 public:
  // Begins to show progress. `live` says whether standard output is a terminal, on which one line can be redrawn.
  // `total`, `done` and the amounts of Add() are counted in `unit`. `done` is the amount that an interrupted earlier
  // run has done.
  WorkProgress(bool live, std::string unit, double total, double done);

  // Adds `amount` to the work done. Several threads may call Add() at the same time.
  void Add(double amount);

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string Line() const;

  const std::string unit_;
  const double total_;
  const double done_before_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;  // guards the members below
  double done_;
  LiveLine line_;
};

}  // namespace lockstep
