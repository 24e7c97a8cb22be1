// MemoryTrend: finds out whether the memory of a process or of a GPU keeps growing.
//
// Promise: memory that grows at the beginning and then stays constant, as the memory of allocators and caches does, has
// no trend. A trend is growth that goes on at about the same rate in each quarter of the later half of the run.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

class MemoryTrend {
 public:
  // Makes a trend without points. Growth of less than `least_growth_bytes` in the later half of the run is no trend.
  explicit MemoryTrend(double least_growth_bytes = 32 << 20)
      : least_growth_bytes_(least_growth_bytes) {}

  // Adds a point: the memory was `bytes` when `step` steps were done.
  void Add(int64_t step, int64_t bytes);

  // Returns the bytes by which memory grows per step; 0 if there is no trend.
  double BytesPerStep() const;

 private:
  struct Point {
    int64_t step = 0;
    int64_t bytes = 0;
  };

  double least_growth_bytes_;
  std::vector<Point> points_;
  int64_t spacing_ = 1;  // every spacing_-th call of Add() adds a point
  int64_t calls_ = 0;
};

}  // namespace lockstep
