#include "observe/verdict/machine_means.h"

#include <algorithm>

namespace lockstep {
namespace {

// Returns the fraction of the GPU's clock rate that is lost to a fault.
double ThrottledShare(const GpuReading& gpu) {
  if (!gpu.throttle_reasons || !IsSlowedByFault(*gpu.throttle_reasons) || !gpu.sm_clock_mhz ||
      gpu.sm_clock_limit_mhz.value_or(0) <= 0) {
    return 0;
  }
  return std::clamp(1 - static_cast<double>(*gpu.sm_clock_mhz) / *gpu.sm_clock_limit_mhz, 0.0, 1.0);
}

}  // namespace

void MachineMeans::Add(const MachineReading& reading, int64_t step, double samples) {
  ++readings_;
  const HostReading& host = reading.host_reading;
  cpu_use_.Add(host.cpu_use);
  if (host.memory_total > 0) {
    memory_left_ = static_cast<double>(host.memory_total - host.memory_used);
  }
  if (host.process_anonymous > 0) memory_.Add(step, host.process_anonymous);

  double joules = 0;
  double throttled = 0;
  double share = -1;
  bool knows_energy = !reading.gpus.empty();
  for (const GpuReading& gpu : reading.gpus) {
    if (gpu.use) gpu_use_.Add(*gpu.use);
    if (gpu.memory_used && gpu.memory_total.value_or(0) > 0) {
      share = std::max(
          share, static_cast<double>(*gpu.memory_used) / static_cast<double>(*gpu.memory_total));
    }
    throttled = std::max(throttled, ThrottledShare(gpu));
    knows_energy = knows_energy && gpu.energy_j;
    joules += gpu.energy_j.value_or(0);
  }
  if (share >= 0) gpu_memory_share_ = share;
  if (!reading.gpus.empty()) throttled_.Add(throttled);
  if (!knows_energy) return;
  joules_ = joules;
  samples_ = samples;
  if (first_joules_ < 0) {
    first_joules_ = joules;
    first_samples_ = samples;
  }
}

double MachineMeans::joules_per_sample() const {
  const double samples = samples_ - first_samples_;
  return samples > 0 ? (joules_ - first_joules_) / samples : -1;
}

}  // namespace lockstep
