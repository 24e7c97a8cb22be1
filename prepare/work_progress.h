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
  // `live`: standard output is a terminal that one line may be redrawn on. `total` and what is added
  // are in `unit`s; `done` of them were done by a run before.
  WorkProgress(bool live, std::string unit, double total, double done);

  // May be called by several threads.
  void Add(double amount);

  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::string Line() const;

  const std::string unit_;
  const double total_;
  const double done_before_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;  // guards what follows
  double done_;
  LiveLine line_;
};

}  // namespace lockstep
