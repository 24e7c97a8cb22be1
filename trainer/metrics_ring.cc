#include "trainer/metrics_ring.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>

#include <memory>
#include <utility>

namespace lockstep {

void MetricsRing::Push(const StepReport& report, const at::Tensor& loss,
                       const at::Tensor& grad_norm) {
  if (free_.empty())
    free_.push_back(at::empty({2}, at::TensorOptions(at::kFloat).pinned_memory(on_gpu_)));
  Entry entry{.report = report, .figures = std::move(free_.back())};
  free_.pop_back();
  entry.figures[0].copy_(loss, /*non_blocking=*/true);
  if (grad_norm.defined()) {
    entry.figures[1].copy_(grad_norm, /*non_blocking=*/true);
  } else {
    entry.figures[1].fill_(-1);
  }
  if (on_gpu_) {
    auto copied = std::make_shared<at::cuda::CUDAEvent>();
    copied->record();
    entry.until_copied = [copied] { copied->synchronize(); };
  }
  entries_.push_back(std::move(entry));
}

std::optional<StepReport> MetricsRing::Pop(int64_t step) {
  if (entries_.empty() || step - entries_.front().report.step < (on_gpu_ ? kLag : 0))
    return std::nullopt;
  return PopAnyway();
}

std::optional<StepReport> MetricsRing::PopAnyway() {
  if (entries_.empty()) return std::nullopt;
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  if (entry.until_copied) entry.until_copied();
  entry.report.loss = entry.figures.const_data_ptr<float>()[0];
  entry.report.grad_norm = entry.figures.const_data_ptr<float>()[1];
  free_.push_back(std::move(entry.figures));
  return entry.report;
}

}  // namespace lockstep
