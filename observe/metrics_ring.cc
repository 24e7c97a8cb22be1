#include "observe/metrics_ring.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace lockstep {

void MetricsRing::Push(const StepReport& report, const at::Tensor& figures) {
  if (free_.empty()) {
    free_.push_back(
        at::empty(figures.sizes(), at::TensorOptions(figures.dtype()).pinned_memory(on_gpu_)));
  }
  Entry entry{.report = report, .figures = std::move(free_.back())};
  free_.pop_back();
  entry.figures.copy_(figures, /*non_blocking=*/true);
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
  const auto* figures = entry.figures.const_data_ptr<double>();
  std::copy(figures, figures + ops::kStepFigures, entry.report.figures.begin());
  free_.push_back(std::move(entry.figures));
  return entry.report;
}

}  // namespace lockstep
