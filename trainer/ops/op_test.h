// What the operations' tests share: each case runs on the CPU and on a GPU, where there is one, in the
// three types of the kernels.
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace lockstep::ops {

class OpTest : public testing::TestWithParam<std::tuple<at::DeviceType, at::ScalarType>> {
 protected:
  void SetUp() override {
    if (device() == at::kCUDA && at::cuda::device_count() == 0) {
      GTEST_SKIP() << "needs a GPU; this machine has none";
    }
    at::manual_seed(1);
  }
  at::DeviceType device() const { return std::get<0>(GetParam()); }
  at::ScalarType dtype() const { return std::get<1>(GetParam()); }
  at::TensorOptions options() const { return options(dtype()); }
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions(device()).dtype(type);
  }
};

inline auto EveryDeviceAndType() {
  return testing::Combine(testing::Values(at::kCPU, at::kCUDA),
                          testing::Values(at::kFloat, at::kHalf, at::kBFloat16));
}

// "GpuBFloat16".
inline std::string DeviceAndType(const testing::TestParamInfo<OpTest::ParamType>& info) {
  return std::string(std::get<0>(info.param) == at::kCUDA ? "Gpu" : "Cpu") +
         c10::toString(std::get<1>(info.param));
}

// Whether no value is further from the float64 `expected` than `tolerance` times the greatest of those,
// or of 1.
inline testing::AssertionResult IsNear(const at::Tensor& actual, const at::Tensor& expected,
                                       double tolerance) {
  if (!actual.defined()) return testing::AssertionFailure() << "undefined";
  if (actual.sizes() != expected.sizes()) return testing::AssertionFailure() << actual.sizes();
  const double difference = (actual.to(at::kDouble) - expected).abs().max().item<double>();
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  if (difference <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << difference << " of " << scale;
}

}  // namespace lockstep::ops
