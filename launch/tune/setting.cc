#include "launch/tune/setting.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace lockstep {

Setting Joined(Setting setting, const Setting& more) {
  for (const FieldValue& field : more) {
    const auto same = std::ranges::find(setting, field.name, &FieldValue::name);
    if (same == setting.end()) {
      setting.push_back(field);
    } else {
      same->value = field.value;
    }
  }
  return setting;
}

SettingTrials::SettingTrials(Measure measure, double end_s,
                             std::function<void(const SettingTrial&)> on_trial)
    : measure_(std::move(measure)), end_s_(end_s), on_trial_(std::move(on_trial)) {
  if (const auto trial = Time({})) users_ = best_ = *trial;
}

bool SettingTrials::Goes(int trials) const {
  return !stopped_ && SecondsSinceBoot() + trials * slowest_s_ <= end_s_;
}

std::optional<double> SettingTrials::Try(const Setting& added) {
  if (!Goes()) {
    out_of_time_ = !stopped_;
    return std::nullopt;
  }
  const auto trial = Time(Joined(best_.setting, added));
  if (!trial) return std::nullopt;
  if (trial->samples_per_s > best_.samples_per_s) best_ = *trial;
  return trial->samples_per_s;
}

void SettingTrials::Confirm() {
  if (best_.is_users || stopped_) return;
  if (users_.samples_per_s > 0 && Goes(/*trials=*/2)) {
    // The best of many measurements is partly luck, so the best setting and the user's are compared by new
    // measurements.
    const auto users = Time({});
    const auto best = users ? Time(best_.setting) : std::nullopt;
    if (!best) return;
    users_.samples_per_s = users->samples_per_s;
    best_.samples_per_s = best->samples_per_s;
  }
  if (best_.samples_per_s < (1 + kFasterBy) * users_.samples_per_s) best_ = users_;
}

std::optional<SettingTrial> SettingTrials::Time(const Setting& setting) {
  SettingTrial trial = measure_(setting);
  trial.setting = setting;
  trial.is_users = setting.empty();
  slowest_s_ = std::max(slowest_s_, trial.wall_s);
  stopped_ = trial.stopped;
  if (stopped_) return std::nullopt;
  has_others_ |= !trial.is_users;
  on_trial_(trial);
  return trial;
}

}  // namespace lockstep
