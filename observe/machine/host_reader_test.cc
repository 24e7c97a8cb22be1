#include "observe/machine/host_reader.h"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

class Host : public testing::Test {
 protected:
  Host() {
    WriteStat(1000, 3000);
    WriteFile(proc_ + "/meminfo",
              "MemTotal:  16777216 kB\nMemFree:  1 kB\nMemAvailable:  4194304 kB\n");
    WriteFile(proc_ + "/self/cgroup", "0::/job\n");
    WriteFile(proc_ + "/self/statm", "900 300 20 1 0 30 0\n");
    WriteFile(proc_ + "/self/status", "Name:\tlockstep\nRssAnon:\t    1024 kB\nRssFile:\t  8 kB\n");
  }

  // Writes a file /proc/stat with `busy` and `idle` ticks. Eight tenths of the busy ticks are USER, one tenth is NICE,
  // and one tenth is IRQ. Nine tenths of the idle ticks are IDLE, and one tenth is IOWAIT.
  void WriteStat(int busy, int idle) const {
    const std::string ticks = std::to_string(busy * 8 / 10) + " " + std::to_string(busy / 10) +
                              " 0 " + std::to_string(idle * 9 / 10) + " " +
                              std::to_string(idle / 10) + " " + std::to_string(busy / 10) +
                              " 0 0 77777 0\n";
    WriteFile(proc_ + "/stat", "cpu  " + ticks + "cpu0 1 2 3\ncpu1 1 2 3\nintr 1 2\n");
  }

  HostReader Reader() const { return HostReader(proc_, groups_); }

  std::string proc_ = NewFolder();
  std::string groups_ = NewFolder();
};

TEST_F(Host, CoresAreBusySinceTheReadingBefore) {
  HostReader reader = Reader();
  WriteStat(1100, 3300);
  HostReading reading = reader.Read();
  EXPECT_DOUBLE_EQ(reading.cpu_use, 0.25);
  EXPECT_EQ(reading.cores, 2);
  EXPECT_EQ(reader.Read().cpu_use, 0);  // no tick since the last reading
  WriteStat(1400, 3400);
  EXPECT_DOUBLE_EQ(reader.Read().cpu_use, 0.75);
}

TEST_F(Host, MemoryIsTheMachines) {
  const HostReading reading = Reader().Read();
  EXPECT_EQ(reading.memory_total, int64_t{16} << 30);
  EXPECT_EQ(reading.memory_used, int64_t{12} << 30);
  EXPECT_EQ(reading.process_memory, 300 * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(reading.process_anonymous, 1024 * 1024);
}

TEST_F(Host, MemoryIsAGroupsThatHasLess) {
  WriteFile(groups_ + "/job/memory.max", "8589934592\n");
  WriteFile(groups_ + "/job/memory.current", "3000000000\n");
  WriteFile(groups_ + "/job/memory.stat", "anon 2\nfile 5\ninactive_file 1000000000\n");
  const HostReading reading = Reader().Read();
  EXPECT_EQ(reading.memory_total, int64_t{8} << 30);
  EXPECT_EQ(reading.memory_used, 2'000'000'000);
}

TEST_F(Host, MemoryIsAnOldGroups) {
  WriteFile(proc_ + "/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/\n");
  WriteFile(groups_ + "/memory/box/memory.limit_in_bytes", "1073741824\n");
  WriteFile(groups_ + "/memory/box/memory.usage_in_bytes", "700000000\n");
  WriteFile(groups_ + "/memory/box/memory.stat",
            "inactive_file 1\ntotal_inactive_file 200000000\n");
  const HostReading reading = Reader().Read();
  EXPECT_EQ(reading.memory_total, int64_t{1} << 30);
  EXPECT_EQ(reading.memory_used, 500'000'000);
}

TEST_F(Host, NothingCanBeRead) {
  const HostReading reading = HostReader("/nowhere", "/nowhere").Read();
  EXPECT_EQ(reading.cpu_use, 0);
  EXPECT_EQ(reading.memory_total, 0);
  EXPECT_EQ(reading.process_memory, 0);
}

TEST(HostReader, ReadsThisMachine) {
  struct sysinfo system {};
  ASSERT_EQ(sysinfo(&system), 0);
  // The pages of `held` are resident, because they have been written. Without the assembly statement the compiler would
  // leave out `held`, because nothing reads it.
  const std::vector<char> held(size_t{64} << 20, 1);
  asm volatile("" : : "r"(held.data()) : "memory");
  const HostReading reading = HostReader().Read();
  EXPECT_EQ(reading.cores, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_LE(reading.memory_total, static_cast<int64_t>(system.totalram) * system.mem_unit);
  EXPECT_GT(reading.memory_total, 0);
  EXPECT_GT(reading.memory_used, 0);
  EXPECT_GT(reading.process_memory, static_cast<int64_t>(held.size()));
}

}  // namespace
}  // namespace lockstep
