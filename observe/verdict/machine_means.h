// MachineMeans: computes means over the readings of a run's machine (observe/machine/machine_reading.h).
//
// Invariant: a value that the driver never reported is negative, except throttled_share(), which is then 0.
#pragma once

#include <cstdint>

#include "observe/machine/machine_reading.h"
#include "observe/verdict/memory_trend.h"

namespace lockstep {

class MachineMeans {
 public:
  // Adds a reading that was taken when `step` steps were done. `samples` is the number of samples on which this
  // machine's ranks had trained before the reading.
  void Add(const MachineReading& reading, int64_t step, double samples);

  // Returns the fraction of the time in which a kernel ran, as the mean over all GPUs and readings. The fraction is
  // negative if there are fewer than kLeastReadings readings.
  double gpu_use() const { return readings_ < kLeastReadings ? -1 : gpu_use_.value(); }
  // Returns the used fraction of the fullest GPU's memory in the last reading.
  double gpu_memory_share() const { return gpu_memory_share_; }
  // Returns the used fraction of all cores' time. The fraction is negative if there are fewer than kLeastReadings
  // readings.
  double cpu_use() const { return readings_ < kLeastReadings ? -1 : cpu_use_.value(); }
  // Returns the fraction of the slowest GPU's clock rate that is lost to heat, to the power supply or to another fault,
  // as the mean over the readings; 0 if no GPU is slowed by a fault.
  double throttled_share() const { return throttled_.value() > 0 ? throttled_.value() : 0; }
  // Returns the energy that all GPUs used per sample of this machine's ranks, in joules.
  double joules_per_sample() const;
  // Returns the bytes by which this process's memory grows per step; 0 if the memory does not keep growing.
  double memory_growth() const { return memory_.BytesPerStep(); }
  // Returns the unused bytes of the host's memory in the last reading.
  double memory_left() const { return memory_left_; }

 private:
  static constexpr int64_t kLeastReadings = 3;

  class Mean {
   public:
    void Add(double value) {
      sum_ += value;
      ++count_;
    }
    double value() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : -1; }

   private:
    double sum_ = 0;
    int64_t count_ = 0;
  };

  int64_t readings_ = 0;
  Mean gpu_use_;
  Mean cpu_use_;
  Mean throttled_;
  double gpu_memory_share_ = -1;
  double memory_left_ = -1;
  double first_joules_ = -1;
  double first_samples_ = 0;
  double joules_ = -1;
  double samples_ = 0;
  MemoryTrend memory_;
};

}  // namespace lockstep
