#include "observe/verdict/machine_means.h"

#include <gtest/gtest.h>
#include <nvml.h>

namespace lockstep {
namespace {

MachineReading Reading(double cpu_use, std::vector<GpuReading> gpus) {
  MachineReading reading;
  reading.host_reading = {.cpu_use = cpu_use,
                          .cores = 8,
                          .memory_used = 10,
                          .memory_total = 30,
                          .process_anonymous = 5};
  reading.gpus = std::move(gpus);
  return reading;
}

GpuReading Gpu(double use, double joules) {
  GpuReading gpu;
  gpu.use = use;
  gpu.memory_use = use / 2;
  gpu.memory_used = 20;
  gpu.memory_total = 80;
  gpu.energy_j = joules;
  gpu.sm_clock_mhz = 1500;
  gpu.sm_clock_limit_mhz = 2000;
  return gpu;
}

TEST(MachineMeans, KnowNothingBeforeSomeReadings) {
  MachineMeans means;
  means.Add(Reading(0.5, {Gpu(0.9, 0)}), 1, 1);
  EXPECT_LT(means.gpu_use(), 0);
  EXPECT_LT(means.cpu_use(), 0);
  EXPECT_LT(means.joules_per_sample(), 0);
}

TEST(MachineMeans, AreOfAllGpusAndReadings) {
  MachineMeans means;
  means.Add(Reading(0.2, {Gpu(0.9, 100), Gpu(0.7, 1000)}), 10, 0);
  means.Add(Reading(0.4, {Gpu(1, 150), Gpu(0.8, 1050)}), 20, 100);
  means.Add(Reading(0.6, {Gpu(1, 200), Gpu(1, 1100)}), 30, 200);
  EXPECT_NEAR(means.gpu_use(), 0.9, 1e-9);
  EXPECT_NEAR(means.gpu_memory_share(), 0.25, 1e-9);
  EXPECT_NEAR(means.cpu_use(), 0.4, 1e-9);
  EXPECT_NEAR(means.joules_per_sample(), 1, 1e-9);
  EXPECT_EQ(means.memory_left(), 20);
  EXPECT_EQ(means.memory_growth(), 0);
  EXPECT_EQ(means.throttled_share(), 0);
}

TEST(MachineMeans, AMachineWithoutAGpu) {
  MachineMeans means;
  for (int i = 0; i < 3; ++i) means.Add(Reading(0.4, {}), i, i);
  EXPECT_NEAR(means.cpu_use(), 0.4, 1e-9);
  EXPECT_LT(means.gpu_use(), 0);
  EXPECT_LT(means.gpu_memory_share(), 0);
  EXPECT_LT(means.joules_per_sample(), 0);
  EXPECT_EQ(means.throttled_share(), 0);
}

TEST(MachineMeans, AGpuThatIsHotLosesAPartOfItsClockRate) {
  GpuReading gpu = Gpu(1, 0);
  gpu.throttle_reasons = nvmlClocksEventReasonSwPowerCap;
  MachineMeans usual;
  usual.Add(Reading(0, {gpu}), 1, 1);
  EXPECT_EQ(usual.throttled_share(), 0);  // the power limit is not a fault
  gpu.throttle_reasons = nvmlClocksEventReasonSwPowerCap | nvmlClocksEventReasonSwThermalSlowdown;
  MachineMeans hot;
  hot.Add(Reading(0, {gpu}), 1, 1);
  EXPECT_NEAR(hot.throttled_share(), 0.25, 1e-9);
}

}  // namespace
}  // namespace lockstep
