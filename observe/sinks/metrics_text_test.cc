#include "observe/sinks/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kEveryS = 5;

MachineReading TwoGpus() {
  MachineReading reading{.time = 1, .host = "node1", .host_reading = {}, .gpus = {}};
  for (const int index : {0, 1}) {
    GpuReading gpu;
    gpu.index = index;
    gpu.name = "NVIDIA H100";
    gpu.uuid = index == 0 ? "GPU-a" : "GPU-b";
    gpu.use = 0.97;
    gpu.memory_used = int64_t{3} << 30;
    gpu.memory_free = int64_t{76} << 30;  // the driver has reserved the rest
    gpu.memory_total = int64_t{80} << 30;
    gpu.rank = 4 + index;
    gpu.process_memory = 1000 + index;
    gpu.energy_j = 1.5;
    reading.gpus.push_back(gpu);
  }
  return reading;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(MetricsText, GpusHaveTheNamesLabelsAndUnitsOfDcgmExporter) {
  RankMetrics metrics(0, kEveryS);
  metrics.Add(RunStarted{.run_dir = "run"});
  metrics.Add(TwoGpus());
  const std::string text = metrics.Text({});
  const std::string labels =
      "{gpu=\"0\",UUID=\"GPU-a\",device=\"nvidia0\",modelName=\"NVIDIA H100\",Hostname=\"node1\"} ";
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_GPU_UTIL" + labels + "97\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_FB_USED" + labels + "3072\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_FB_FREE" + labels + "77824\n"));
  EXPECT_THAT(text, HasSubstr("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" + labels + "1500\n"));
  // Values that the driver does not report are left out.
  EXPECT_THAT(text, Not(HasSubstr("DCGM_FI_DEV_GPU_TEMP")));
}

TEST(MetricsText, TheMemoryOfAProcessIsThatOfTheRankThatUsesTheGpu) {
  RankMetrics metrics(4, kEveryS);
  metrics.Add(RunStarted{.run_dir = "run"});
  metrics.Add(TwoGpus());
  const std::string text = metrics.Text({.process_memory = 77});
  EXPECT_THAT(text, testing::ContainsRegex("lockstep_gpu_process_memory_bytes"
                                           "[{]run=\"run\",rank=\"4\",gpu=\"0\",[^}]*[}] 1000\n"));
  EXPECT_THAT(text, testing::ContainsRegex("lockstep_gpu_process_memory_bytes"
                                           "[{]run=\"run\",rank=\"5\",gpu=\"1\",[^}]*[}] 1001\n"));
  EXPECT_THAT(text,
              HasSubstr("lockstep_process_resident_memory_bytes{run=\"run\",rank=\"4\"} 77\n"));
}

TEST(MetricsText, AReadingThatIsOldIsLeftOut) {
  RankMetrics metrics(0, kEveryS);
  metrics.Add(RunStarted{.run_dir = "run"});
  metrics.Add(TwoGpus());
  const double time = TwoGpus().time;
  for (const char* name : {"DCGM_FI_DEV_GPU_UTIL{", "lockstep_host_cpu_ratio{"}) {
    EXPECT_THAT(metrics.Text({.time = time + 3 * kEveryS}), HasSubstr(name));
    EXPECT_THAT(metrics.Text({.time = time + 3 * kEveryS + 1}), Not(HasSubstr(name)));
  }
  RankMetrics often(0, 0.1);
  often.Add(TwoGpus());
  EXPECT_THAT(often.Text({.time = time + 10}), HasSubstr("lockstep_host_cpu_ratio{"));
  EXPECT_THAT(often.Text({.time = time + 11}), Not(HasSubstr("lockstep_host_cpu_ratio{")));
}

TEST(MetricsText, EachFamilyAndSeriesIsThereOnce) {
  std::string texts[2];
  for (int rank : {0, 1}) {
    RankMetrics metrics(rank, kEveryS);
    metrics.Add(RunStarted{.run_dir = "run"});
    metrics.Add(TwoGpus());
    texts[rank] = metrics.Text({.steps = 7});
  }
  const std::string page = MergedMetrics({texts[0], texts[1]});
  EXPECT_EQ(Count(page, "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"), 1);
  EXPECT_EQ(Count(page, "\nDCGM_FI_DEV_GPU_UTIL{"), 2);
  EXPECT_EQ(Count(page, "# TYPE lockstep_steps_total counter\n"), 1);
  EXPECT_THAT(page, HasSubstr("lockstep_steps_total{run=\"run\",rank=\"0\"} 7\n"
                              "lockstep_steps_total{run=\"run\",rank=\"1\"} 7\n"));
}

TEST(MetricsText, CountersOfAResumedRunBeginAtZero) {
  RankMetrics metrics(0, kEveryS);
  metrics.Add(RunStarted{.run_dir = "run", .restarts = 2});
  metrics.Add(RunResumed{.step = 100});
  EXPECT_THAT(metrics.Text({}), HasSubstr("lockstep_step{run=\"run\",rank=\"0\"} 100\n"));
  EXPECT_THAT(metrics.Text({}), HasSubstr("lockstep_steps_total{run=\"run\",rank=\"0\"} 0\n"));
  EXPECT_THAT(metrics.Text({.steps = 130}),
              HasSubstr("lockstep_steps_total{run=\"run\",rank=\"0\"} 30\n"));
  EXPECT_THAT(metrics.Text({.steps = 130}),
              HasSubstr("lockstep_restarts_total{run=\"run\",rank=\"0\"} 2\n"));
}

TEST(MetricsText, LostSecondsNeverFall) {
  RankMetrics metrics(0, kEveryS);
  SecondsReport report{.step = 1, .steps = 1, .wall_s = 10, .ideal_s = 4};
  auto& reading_s = report.lost_s[static_cast<size_t>(Loss::kReading)];
  reading_s = 6;
  metrics.Add(report);
  reading_s = 5;
  metrics.Add(report);
  EXPECT_THAT(metrics.Text({}), HasSubstr("cause=\"reading\"} 6\n"));
  EXPECT_THAT(metrics.Text({}), HasSubstr("lockstep_ideal_ratio{run=\"\",rank=\"0\"} 0.4\n"));
}

TEST(MetricsText, NamesAndNumbersAreWrittenAsPrometheusReadsThem) {
  RankMetrics metrics(0, kEveryS);
  metrics.Add(RunStarted{.run_dir = "a\"b\\c\nd"});
  metrics.Add(Evaluated{.step = 1,
                        .epoch = 1,
                        .metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()},
                                    {"rmse", std::numeric_limits<double>::infinity()}}});
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr(R"(run="a\"b\\c\nd",rank="0",metric="loss"} NaN)"));
  EXPECT_THAT(text, HasSubstr(R"(metric="rmse"} +Inf)"));
}

}  // namespace
}  // namespace lockstep
