#include "launch/machine/driver.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr char kFile[] =
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
constexpr char kOpenFile[] =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n";

TEST(Driver, HasAVersion) {
  EXPECT_EQ(DriverVersion(kFile), "535.104.05");
  EXPECT_EQ(DriverVersion(kOpenFile), "580.95.05");
  EXPECT_EQ(DriverVersion(""), "");
}

TEST(Driver, TooOld) {
  EXPECT_THAT(
      MessageOf(ExitStatus::kUsage,
                [] { RequireWorkingDriver(cudaErrorInsufficientDriver, kFile); }),
      HasSubstr("the NVIDIA driver 535.104.05 is too old for CUDA 13.0: install 580 or newer"));
}

TEST(Driver, DoesNotWork) {
  EXPECT_THAT(MessageOf(ExitStatus::kUsage,
                        [] { RequireWorkingDriver(cudaErrorSystemDriverMismatch, kFile); }),
              HasSubstr("the GPUs of this machine cannot be used: "));
}

TEST(Driver, NoneIsNoError) {
  RequireWorkingDriver(cudaErrorInsufficientDriver, "");
  RequireWorkingDriver(cudaErrorNoDevice, kFile);  // CUDA's error if all GPUs are hidden
}

}  // namespace
}  // namespace lockstep
