#include "base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Cgroup : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double Cores(const std::string& groups) const {
    std::istringstream lines(groups);
    return CgroupCores(lines, root_.string());
  }

  double Memory(const std::string& groups) const {
    std::istringstream lines(groups);
    return CgroupMemory(lines, root_.string());
  }

  fs::path root_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Cgroup, TakesTheLeastOfAGroupAndItsParents) {
  Write("a/b/cpu.max", "max 100000\n");
  Write("a/cpu.max", "250000 100000\n");
  Write("cpu.max", "800000 100000\n");
  EXPECT_EQ(Cores("0::/a/b\n"), 2.5);
  EXPECT_EQ(Cores("0::/elsewhere/c\n"), 8);
  EXPECT_EQ(Cores("0::/\n"), 8);
}

TEST_F(Cgroup, ReadsVersionOne) {
  Write("cpu/job/cpu.cfs_quota_us", "400000\n");
  Write("cpu/job/cpu.cfs_period_us", "100000\n");
  Write("cpu/cpu.cfs_quota_us", "-1\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cores("5:memory:/job\n4:cpu,cpuacct:/job\n1:cpuset:/\n"), 4);
  EXPECT_TRUE(std::isinf(Cores("4:cpu,cpuacct:/\n")));
}

TEST_F(Cgroup, ReadsMemory) {
  Write("slurm/job/memory.max", "8589934592\n");
  Write("slurm/memory.max", "max\n");
  EXPECT_EQ(Memory("0::/slurm/job\n"), 8589934592.0);
  Write("memory/box/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(Memory("5:memory:/box\n4:cpu,cpuacct:/\n"), 1073741824.0);
  EXPECT_TRUE(std::isinf(Memory("0::/elsewhere\n")));
}

TEST_F(Cgroup, NoLimitIsNone) {
  EXPECT_TRUE(std::isinf(Cores("")));
  EXPECT_TRUE(std::isinf(Cores("0::/a\nnonsense\n0::no slash\n")));
  Write("a/cpu.max", "what?");
  EXPECT_TRUE(std::isinf(Cores("0::/a\n")));
}

TEST(UsableCores, FollowsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_LE(UsableCores(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableCores(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace lockstep
