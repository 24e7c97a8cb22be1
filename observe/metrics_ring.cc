#include "observe/metrics_ring.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Sleep.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/tensor/range.h"
#include "observe/step_clock.h"

namespace lockstep {

MetricsRing::Event MetricsRing::NewEvent() {
  if (free_events_.empty()) return std::make_shared<at::cuda::CUDAEvent>(cudaEventDefault);
  Event event = std::move(free_events_.back());
  free_events_.pop_back();
  return event;
}

void MetricsRing::BeginStep(double delay_s) {
  if (!on_gpu_) return;
  is_delayed_ = delay_s > 0;
  // at::cuda::sleep() counts cycles of the GPU's clock, which is about 2 GHz or less, so the GPU sleeps for about
  // `delay_s` or longer.
  constexpr double kHertz = 2e9;
  if (is_delayed_) at::cuda::sleep(static_cast<int64_t>(kHertz * delay_s));
  // Recording an event delays the GPU by 2 us. If the GPU still works on the previous step, it is not idle before the
  // step that begins, so this step needs no begin event.
  if (!is_delayed_ && !entries_.empty() && !entries_.back().end->query()) return;
  begin_ = NewEvent();
  begin_->record();
}

void MetricsRing::Push(const StepReport& report, const at::Tensor& figures) {
  const Range range(std::string(NameOf(Phase::kRest)), Range::Of::kStep);
  if (free_.empty()) {
    free_.push_back(
        at::empty(figures.sizes(), at::TensorOptions(figures.dtype()).pinned_memory(on_gpu_)));
  }
  Entry entry{.report = report, .figures = std::move(free_.back()), .begin = std::move(begin_)};
  free_.pop_back();
  entry.figures.copy_(figures, /*non_blocking=*/true);
  if (on_gpu_) {
    entry.end = NewEvent();
    entry.end->record();
    entry.is_delayed = is_delayed_;
    entry.is_unbroken = is_delayed_ && !entry.begin->query();
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
  if (on_gpu_) TakeTime(entry);
  const auto* figures = entry.figures.const_data_ptr<double>();
  std::copy(figures, figures + ops::kStepFigures, entry.report.figures.begin());
  free_.push_back(std::move(entry.figures));
  return entry.report;
}

void MetricsRing::TakeTime(Entry& entry) {
  entry.end->synchronize();
  if (entry.is_unbroken) entry.report.time.unbroken = 1e-3 * entry.begin->elapsed_time(*entry.end);
  if (last_end_ && !entry.is_delayed) {
    entry.report.time.total = 1e-3 * last_end_->elapsed_time(*entry.end);
    if (entry.begin) {
      entry.report.time.idle = 1e-3 * std::max(0.0F, last_end_->elapsed_time(*entry.begin));
    }
  }
  if (last_end_) free_events_.push_back(std::move(last_end_));
  if (entry.begin) free_events_.push_back(std::move(entry.begin));
  last_end_ = std::move(entry.end);
}

}  // namespace lockstep
