// Setting: values for some fields of a config. SettingTrials: tries one setting after the other and keeps the fastest.
//
//   SettingTrials trials([&](const Setting& setting) { return TimeOf(setting); }, end_s, print);
//   for (const char* size : {"1048576", "4194304"}) trials.Try({{"ddp.bucket_bytes", size}});
//   trials.Confirm();
//   Use(trials.best().setting);
//
// A setting is tried on top of the fastest so far, so that fields are found one after the other and not in all their
// combinations. The user's own is kept unless another one is clearly faster.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {

struct FieldValue {
  std::string name;   // "loader.threads"
  std::string value;  // as --set has it: "4"

  bool operator==(const FieldValue&) const = default;
};

using Setting = std::vector<FieldValue>;  // empty: the config as it is

// Returns `setting` with the fields of `more`, which count where both have one.
Setting Joined(Setting setting, const Setting& more);

struct SettingTrial {
  Setting setting;           // as far as it differs from the config
  double samples_per_s = 0;  // 0: it cannot be used
  double wall_s = 0;
  std::string note;  // for the user: why it cannot be used, or what was seen
  bool is_users = false;
  std::optional<ExitStatus> stopped;  // the status that a signal to this process asks for
};

class SettingTrials {
 public:
  // Another setting must be faster than the user's by so much, which is more than one differs from trial to trial.
  static constexpr double kFasterBy = 0.02;

  using Measure = std::function<SettingTrial(const Setting&)>;

  // Measures the config as it is. No trial begins that would not end before `end_s` (SecondsSinceBoot()). Calls
  // `on_trial` after each. Throws what `measure` throws.
  SettingTrials(Measure measure, double end_s, std::function<void(const SettingTrial&)> on_trial);

  // Whether there is time for another trial.
  bool Goes() const;

  // Tries `added` on top of the best so far. Returns the samples/s; nothing: there was no time left.
  std::optional<double> Try(const Setting& added);

  // Tries the best and the user's once more, and keeps the user's unless the best is clearly faster.
  void Confirm();

  const SettingTrial& users() const { return users_; }
  const SettingTrial& best() const { return best_; }
  bool out_of_time() const { return out_of_time_; }
  std::optional<ExitStatus> stopped() const { return stopped_; }

 private:
  std::optional<SettingTrial> Time(const Setting& setting);

  Measure measure_;
  double end_s_;
  std::function<void(const SettingTrial&)> on_trial_;
  SettingTrial users_, best_;
  double slowest_s_ = 0;
  bool out_of_time_ = false;
  std::optional<ExitStatus> stopped_;
};

}  // namespace lockstep
