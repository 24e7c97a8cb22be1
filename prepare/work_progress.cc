#include "prepare/work_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

constexpr std::chrono::seconds kPlainPeriod{10};
constexpr int kBarWidth = 30;

}  // namespace

WorkProgress::WorkProgress(bool live, std::string unit, double total, double done)
    : unit_(std::move(unit)),
      total_(total),
      done_before_(done),
      done_(done),
      line_(live, kPlainPeriod) {
  if (done > 0) {
    line_.Say(fmt::format("{:.0f} of {:.0f} {} are done already: going on", done, total, unit_));
  }
}

double WorkProgress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void WorkProgress::Add(double amount) {
  const std::lock_guard lock(mutex_);
  done_ += amount;
  if (line_.IsDue()) line_.Show(Line());
}

std::string WorkProgress::Line() const {
  const double share = std::min(1.0, done_ / total_);
  const double rate = (done_ - done_before_) / seconds();
  const int filled = static_cast<int>(std::lround(share * kBarWidth));
  const std::string bar =
      line_.is_live() ? fmt::format("[{:#<{}}{:.<{}}]  ", "", filled, "", kBarWidth - filled) : "";
  const std::string left =
      rate > 0 ? "  " + DurationText((total_ - done_) / rate) + " left" : std::string();
  return fmt::format("{}{:.0f}%  {:.0f}/{:.0f} {}  {:.0f} {}/s{}", bar, 100 * share, done_, total_,
                     unit_, rate, unit_, left);
}

}  // namespace lockstep
