#include "observe/machine/machine_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kGib = 1 << 30;

GpuReading H100() {
  return {.index = 3,
          .name = "NVIDIA H100",
          .use = 0.97,
          .memory_used = 71 * kGib,
          .memory_total = 80 * kGib,
          .power_w = 684.4,
          .power_limit_w = 700,
          .temperature_c = 64,
          .sm_clock_mhz = 1755,
          .sm_clock_limit_mhz = 1980,
          .memory_clock_mhz = 2619,
          .throttle_reasons = 4,
          .xid_errors = 0,
          .pcie_sent_bytes_per_s = 3e8,
          .pcie_received_bytes_per_s = 1.25e9,
          .processes = {{.pid = 17, .memory = 70 * kGib}, {.pid = 18}}};
}

std::vector<std::string> LinesOf(const MachineReading& reading) {
  std::istringstream text(MachineTable(reading, [](int pid) {
    return pid == 17 ? ProcessName{"ann", "lockstep train gpt2.pbtxt"} : ProcessName{};
  }));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(LiveText, OfOneGpu) {
  EXPECT_EQ(LiveText({.gpus = {H100()}}), "GPU 97 %  71 of 80 GiB  684 W  64 C");
}

TEST(LiveText, OfSeveralGpus) {
  GpuReading cold = H100();
  cold.use = 0.4;
  cold.memory_used = 12 * kGib;
  cold.power_w = 700;
  cold.temperature_c = 31;
  EXPECT_EQ(LiveText({.gpus = {H100(), cold}}), "2 GPUs 40 to 97 %  71 of 80 GiB  700 W  64 C");
  EXPECT_EQ(LiveText({.gpus = {H100(), H100()}}), "2 GPUs 97 %  71 of 80 GiB  684 W  64 C");
}

TEST(LiveText, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(LiveText({.gpus = {{.name = "old"}}}), "GPU");
  EXPECT_EQ(LiveText({.gpus = {{.temperature_c = 50}, {.power_w = 80}}}), "2 GPUs  80 W  50 C");
}

TEST(LiveText, OfAHost) {
  EXPECT_EQ(LiveText({.host_reading = {.cpu_use = 0.925,
                                       .cores = 2,
                                       .memory_used = 7 * kGib / 2,
                                       .memory_total = 16 * kGib}}),
            "CPU 92 %  3.5 of 16.0 GiB");
}

TEST(MachineTable, HasAll) {
  const HostReading host{
      .cpu_use = 0.5, .cores = 32, .memory_used = 32 * kGib, .memory_total = 128 * kGib};
  EXPECT_THAT(LinesOf({.host = "node1", .host_reading = host, .gpus = {H100()}}),
              ElementsAre("host node1",                                                 //
                          "  CPU     [##########..........]  50 %   16.0 of 32 cores",  //
                          "  memory  [#####...............]  25 %   32 of 128 GiB",     //
                          "",                                                           //
                          "GPU 3  NVIDIA H100",                                         //
                          "  use     [###################.]  97 %",                     //
                          "  memory  [##################..]  89 %   71 of 80 GiB",      //
                          "  684 of 700 W   64 C   SM 1755 of 1980 MHz   memory 2619 MHz",
                          "  PCIe 1.2 GB/s in, 300 MB/s out",    //
                          "  clocks kept down by: power limit",  //
                          "  pid 17   ann   70.0 GiB   lockstep train gpt2.pbtxt", "  pid 18"));
}

TEST(MachineTable, LeavesOutWhatIsNotKnown) {
  EXPECT_THAT(LinesOf({.host = "a", .gpus = {{.index = 0, .name = "old"}}}),
              ElementsAre("host a", "  CPU     [....................]   0 %   0.0 of 0 cores", "",
                          "GPU 0  old"));
}

TEST(MachineTable, TellsOfErrors) {
  GpuReading broken = H100();
  broken.xid_errors = 79;
  EXPECT_THAT(MachineTable({.gpus = {broken}}, [](int) { return ProcessName{}; }),
              HasSubstr("\n  XID error 79: "));
}

TEST(NameProcess, KnowsThisOne) {
  const ProcessName name = NameProcess(getpid(), "/proc");
  EXPECT_THAT(name.command, HasSubstr("machine/tests"));
  EXPECT_THAT(name.user, Not(IsEmpty()));
}

TEST(NameProcess, IsNoLineBreak) {
  const std::string proc = NewFolder();
  WriteFile(proc + "/9/cmdline", std::string("sh\0-c\0a\nb\0", 11));
  EXPECT_EQ(NameProcess(9, proc).command, "sh -c a b");
  EXPECT_EQ(NameProcess(10, proc).command, "");
}

TEST(ThrottleWords, NameEachBit) {
  EXPECT_THAT(ThrottleWords(0), IsEmpty());
  EXPECT_THAT(ThrottleWords(1), IsEmpty());  // the bit for an idle GPU
  EXPECT_THAT(ThrottleWords(0x4 | 0x40), ElementsAre("power limit", "heat"));
  EXPECT_THAT(ThrottleWords(0x20), ElementsAre("heat"));
  EXPECT_THAT(ThrottleWords(0x8 | 0x80), ElementsAre("power supply", "hardware protection"));
}

}  // namespace
}  // namespace lockstep
