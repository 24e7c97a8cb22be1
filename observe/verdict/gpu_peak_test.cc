#include "observe/verdict/gpu_peak.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(GpuPeak, OfTheNamesThatDriversReport) {
  EXPECT_EQ(PeakFlops("NVIDIA H100 80GB HBM3", Arithmetic::kBf16), 989e12);
  EXPECT_EQ(PeakFlops("NVIDIA H200", Arithmetic::kFp32), 67e12);
  EXPECT_EQ(PeakFlops("NVIDIA A100-SXM4-80GB", Arithmetic::kTf32), 156e12);
  EXPECT_EQ(PeakFlops("NVIDIA A10G", Arithmetic::kBf16), 70e12);
  EXPECT_EQ(PeakFlops("Tesla T4", Arithmetic::kFp16), 65e12);
  EXPECT_EQ(PeakFlops("NVIDIA L4", Arithmetic::kBf16), 121e12);
}

TEST(GpuPeak, IsZeroWhereItIsNotKnown) {
  EXPECT_EQ(PeakFlops("Tesla T4", Arithmetic::kBf16), 0);
  EXPECT_EQ(PeakFlops("NVIDIA RTX A4000", Arithmetic::kBf16), 0);
  EXPECT_EQ(PeakFlops("", Arithmetic::kFp32), 0);
}

}  // namespace
}  // namespace lockstep
