// The fixture and the checks that the operations' tests share. With EveryDeviceAndType(), each test case runs on the
// CPU, and also on the GPU if the machine has one, in the three types of the kernels (float32, float16, bfloat16).
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/tensor/gradient_memory.h"

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
  bool Is16BitOnGpu() const { return device() == at::kCUDA && dtype() != at::kFloat; }
  at::TensorOptions options() const { return options(dtype()); }
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions(device()).dtype(type);
  }
};

inline auto EveryDeviceAndType() {
  return testing::Combine(testing::Values(at::kCPU, at::kCUDA),
                          testing::Values(at::kFloat, at::kHalf, at::kBFloat16));
}

// Returns the name of a test's parameters, device and type, such as "GpuBFloat16".
inline std::string DeviceAndType(const testing::TestParamInfo<OpTest::ParamType>& info) {
  return std::string(std::get<0>(info.param) == at::kCUDA ? "Gpu" : "Cpu") +
         c10::toString(std::get<1>(info.param));
}

// Returns success if no value of `actual` differs from the float64 `expected` by more than tolerance * max(1, the
// greatest absolute value of `expected`).
inline testing::AssertionResult IsNear(const at::Tensor& actual, const at::Tensor& expected,
                                       double tolerance) {
  if (!actual.defined()) return testing::AssertionFailure() << "undefined";
  if (actual.sizes() != expected.sizes()) return testing::AssertionFailure() << actual.sizes();
  const double difference = (actual.to(at::kDouble) - expected).abs().max().item<double>();
  const double scale = std::max(1.0, expected.abs().max().item<double>());
  if (difference <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << difference << " of " << scale;
}

// Checks that `backward`, which computes a gradient for each of `weights`, adds to the .grad of each weight. Runs
// `backward` three times: the gradients must add up in the memory of the first gradient, and hooks like the Reducer's
// must run each time. Then runs `backward` twice with GradientMemory attached: the first run must overwrite the memory,
// which holds NaN, and the second run must add.
inline void ExpectAddsToGradients(const std::function<void()>& backward,
                                  const std::vector<at::Tensor>& weights) {
  int hooks = 0;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  for (const at::Tensor& weight : weights) {
    weight.mutable_grad() = at::Tensor();
    accumulators.push_back(torch::autograd::impl::grad_accumulator(weight));
    accumulators.back()->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [&hooks](const torch::autograd::variable_list& outputs,
                 const torch::autograd::variable_list&) {
          ++hooks;
          return outputs;
        }));
  }
  backward();
  std::vector<at::Tensor> once;
  std::vector<const void*> memory;
  for (const at::Tensor& weight : weights) {
    // The .grad gets memory of its own, because other tensors may share the memory of the .grad that autograd made.
    weight.mutable_grad() = weight.grad().clone();
    once.push_back(weight.grad().to(at::kDouble));
    memory.push_back(weight.grad().const_data_ptr());
  }
  backward();
  backward();
  EXPECT_EQ(hooks, 3 * static_cast<int>(weights.size()));
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_EQ(weights[i].grad().const_data_ptr(), memory[i]) << i;
    EXPECT_TRUE(IsNear(weights[i].grad(), 3 * once[i], 1e-5)) << i;
  }

  std::vector<c10::intrusive_ptr<GradientMemory>> memories;
  for (const at::Tensor& weight : weights) {
    // The .grad has no memory until GradientMemory calls the lambda below, as in a step of the Reducer.
    const auto hidden = std::make_shared<at::DataPtr>();
    const at::Storage storage = weight.grad().storage();
    memories.push_back(c10::make_intrusive<GradientMemory>([hidden, storage] {
      if (*hidden) storage.set_data_ptr_noswap(std::exchange(*hidden, at::DataPtr()));
    }));
    memories.back()->AttachTo(weight.grad());
    memories.back()->Begin();
    memories.back()->TakeOver();
    memories.back()->Begin();
    weight.grad().detach().fill_(NAN);
    *hidden = storage.set_data_ptr(at::DataPtr(nullptr, storage.device()));
    weight.register_hook([memory = memories.back(), weight](const at::Tensor& gradient) {
      const at::NoGradGuard no_grad;
      if (gradient.defined()) memory->ZeroIfUnset(weight.grad());
    });
  }
  for (int times = 1; times <= 2; ++times) {
    backward();
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_TRUE(IsNear(weights[i].grad(), times * once[i], 1e-5)) << i << ", " << times;
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_FALSE(memories[i]->TakeOver()) << i;
    weights[i].mutable_grad() = at::Tensor();
  }
}

}  // namespace lockstep::ops
