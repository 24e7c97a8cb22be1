#include "launch/machine/unusable_gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/testing/test_files.h"

namespace lockstep {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

const DriverGpu kGood{.index = 0, .name = "NVIDIA T4", .uuid = "GPU-0", .capability = 75};
const DriverGpu kOld{.index = 1, .name = "Tesla P100", .uuid = "GPU-1", .capability = 60};

class Pci : public testing::Test {
 protected:
  void Add(const std::string& slot, const std::string& device_class, const std::string& vendor) {
    WriteFile(devices_ + "/" + slot + "/class", device_class + "\n");
    WriteFile(devices_ + "/" + slot + "/vendor", vendor + "\n");
    WriteFile(devices_ + "/" + slot + "/device", "0x0abc\n");
  }

  std::vector<Finding> Found(const std::vector<DriverGpu>& gpus, bool has_others) const {
    return UnusableGpus(gpus, devices_, has_others);
  }

  std::string devices_ = NewFolder();
};

TEST_F(Pci, NamesAnOldGpu) {
  const std::vector<Finding> found = Found({kGood, kOld, {.index = 2, .name = "unknown"}}, true);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].state, State::kWarn);
  EXPECT_EQ(found[0].figure, "GPU 1 (Tesla P100) cannot be used: its compute capability is 6.0");
  EXPECT_EQ(found[0].advice,
            "Lockstep computes on NVIDIA GPUs of compute capability 7.5 or higher; leave it out of "
            "CUDA_VISIBLE_DEVICES");
}

TEST_F(Pci, NamesOtherMakers) {
  Add("0000:03:00.0", "0x030000", "0x1002");
  Add("0000:00:02.0", "0x038000", "0x8086");
  Add("0000:04:00.0", "0x120000", "0x1002");
  const std::vector<Finding> found = Found({}, false);
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].figure,
            "Intel 8086:0abc at 0000:00:02.0 cannot be used: Lockstep computes on NVIDIA GPUs of "
            "compute capability 7.5 or higher");
  EXPECT_EQ(found[0].state, State::kWarn);
  EXPECT_EQ(found[0].advice, "training is on the CPU");
  EXPECT_EQ(found[1].figure.substr(0, 28), "AMD 1002:0abc at 0000:03:00.");
  EXPECT_EQ(found[2].figure.substr(0, 28), "AMD 1002:0abc at 0000:04:00.");
}

TEST_F(Pci, OthersBesideAGoodOneAreNoWarning) {
  Add("0000:00:02.0", "0x030000", "0x8086");
  const std::vector<Finding> found = Found({kGood}, true);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].state, State::kOk);
  EXPECT_EQ(found[0].advice, "");
}

TEST_F(Pci, NamesOnesThatHaveNoDriver) {
  Add("0000:01:00.0", "0x030200", "0x10de");
  const std::vector<Finding> found = Found({}, false);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].state, State::kWarn);
  EXPECT_EQ(found[0].figure,
            "NVIDIA 10de:0abc at 0000:01:00.0 cannot be used: there is no driver that answers");
  EXPECT_THAT(Found({kGood}, true), IsEmpty());
}

TEST_F(Pci, NamesNothingElse) {
  Add("0000:02:00.0", "0x030000", "0x1a03");  // display of a server's management controller
  Add("0000:05:00.0", "0x040300", "0x1002");  // audio function of an AMD GPU
  Add("0000:06:00.0", "0x120000", "0x8086");  // NPU of an Intel processor
  WriteFile(devices_ + "/0000:07:00.0/class", "rubbish");
  EXPECT_THAT(Found({}, false), IsEmpty());
  EXPECT_THAT(UnusableGpus({}, "/nowhere", false), IsEmpty());
}

}  // namespace
}  // namespace lockstep
