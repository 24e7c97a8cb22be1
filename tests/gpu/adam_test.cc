// The kernel against ATen's fused one.

#include "trainer/ops/adam.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

namespace lockstep::ops {
namespace {

TEST(FusedAdam, IsATens) {
  if (at::cuda::device_count() == 0) GTEST_SKIP() << "needs a GPU; this machine has none";
  for (const bool decoupled : {false, true}) {
    std::vector<at::Tensor> w, g, m, v;
    const at::Tensor memory = at::randn({70'001}, at::kCUDA);
    // One element, less than a chunk, several, and one at an odd address.
    for (const int64_t size : {1, 777, 4096, 30'001}) w.push_back(at::randn({size}, at::kCUDA));
    w.push_back(memory.narrow(0, 1, 70'000));
    for (const at::Tensor& tensor : w) {
      g.push_back(at::randn_like(tensor));
      m.push_back(at::zeros_like(tensor));
      v.push_back(at::zeros_like(tensor));
    }
    std::vector<at::Tensor> expected_w, expected_m, expected_v;
    for (size_t i = 0; i < w.size(); ++i) {
      expected_w.push_back(w[i].clone());
      expected_m.push_back(m[i].clone());
      expected_v.push_back(v[i].clone());
    }
    const AdamRules rules{
        .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = 0.1, .decoupled = decoupled};
    const FusedAdam adam(w, g, m, v);
    const at::Tensor lr = at::full({}, 0.02, at::kCUDA);
    const at::Tensor updates = at::zeros({}, at::kCUDA);
    const at::Tensor skip = at::zeros({}, at::kCUDA);
    for (const double scale : {1.0, 8.0, 1.0}) {
      const at::Tensor grad_scale = scale == 1 ? at::Tensor() : at::full({}, scale, at::kCUDA);
      updates.add_(1);
      adam.Update(rules, lr, updates, skip, grad_scale);
      std::vector<at::Tensor> scaled;
      for (const at::Tensor& gradient : g) scaled.push_back(gradient / scale);
      const std::vector<at::Tensor> steps(w.size(), updates);
      if (decoupled) {
        at::_fused_adamw_(expected_w, scaled, expected_m, expected_v, {}, steps, lr, 0.9, 0.999,
                          0.1, 1e-6, /*amsgrad=*/false, /*maximize=*/false);
      } else {
        at::_fused_adam_(expected_w, scaled, expected_m, expected_v, {}, steps, lr, 0.9, 0.999, 0.1,
                         1e-6, /*amsgrad=*/false, /*maximize=*/false);
      }
      for (size_t i = 0; i < w.size(); ++i) {
        EXPECT_TRUE(at::allclose(w[i], expected_w[i], 1e-5, 1e-6));
        EXPECT_TRUE(at::allclose(m[i], expected_m[i], 1e-5, 1e-6));
        EXPECT_TRUE(at::allclose(v[i], expected_v[i], 1e-5, 1e-6));
      }
    }
    skip.fill_(1);
    const at::Tensor before = w.back().clone();
    adam.Update(rules, lr, updates, skip, {});
    EXPECT_TRUE(at::equal(w.back(), before));
  }
}

}  // namespace
}  // namespace lockstep::ops
