#include "observe/progress.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPlainPeriod{5};

std::string Rate(double samples_per_s) {
  return samples_per_s < 1e4 ? fmt::format("{:.0f}", samples_per_s)
                             : fmt::format("{:.1f}k", samples_per_s / 1e3);
}

}  // namespace

Progress::Progress(bool live, int64_t epochs, int64_t total_steps, int64_t global_batch)
    : epochs_(epochs),
      total_steps_(total_steps),
      global_batch_(global_batch),
      line_(live, kPlainPeriod) {}

void Progress::OnStep(const StepReport& report) {
  if (report.step < total_steps_ && !line_.IsDue()) return;
  std::string line =
      fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}  {} samples/s", report.epoch, epochs_,
                  report.step, total_steps_, report.loss(), Rate(report.samples_per_s));
  if (report.samples_per_s > 0 && report.step < total_steps_) {
    const double left =
        static_cast<double>((total_steps_ - report.step) * global_batch_) / report.samples_per_s;
    line += fmt::format("  {} left", DurationText(left));
  }
  line_.Show(line);
}

}  // namespace lockstep
