// Setting: values for some fields of a config. SettingTrials: measures one setting after the other and keeps the
// fastest setting.
//
//   SettingTrials trials([&](const Setting& setting) { return TimeOf(setting); }, end_s, print);
//   for (const char* size : {"1048576", "4194304"}) trials.Try({{"ddp.bucket_bytes", size}});
//   trials.Confirm();
//   Use(trials.best().setting);
//
// A new setting is added to the fastest setting so far. The best values of the fields are thus found one after the
// other, and not all combinations of values are tried. The user's own values are kept unless another setting is clearly
// faster.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {

struct FieldValue {
  std::string name;   // the field, for example "loader.threads"
  std::string value;  // the value as --set takes it, for example "4"

  bool operator==(const FieldValue&) const = default;
};

using Setting = std::vector<FieldValue>;  // the changed fields; empty: the config as it is

// Returns `setting` with the fields of `more` added. If a field is in `setting` and in `more`, the result has the value
// from `more`.
Setting Joined(Setting setting, const Setting& more);

struct SettingTrial {
  Setting setting;                    // the fields that differ from the config
  double samples_per_s = 0;           // measured speed; 0: the setting cannot be used
  double wall_s = 0;                  // duration of the trial, in seconds
  std::string note;                   // why the setting cannot be used, or a remark on it
  bool is_users = false;              // the trial measured the config as it is
  std::optional<ExitStatus> stopped;  // the exit status, if a signal asked to stop
};

class SettingTrials {
 public:
  // Another setting replaces the user's setting only if it is faster by at least this fraction. From trial to trial,
  // the speed of one setting varies by less than that.
  static constexpr double kFasterBy = 0.02;

  using Measure = std::function<SettingTrial(const Setting&)>;

  // Measures the config as it is. `end_s` is the end of the time for trials, on the clock of SecondsSinceBoot(). A
  // trial begins only if it would end before `end_s` even if it took as long as the slowest trial so far. Calls
  // `on_trial` after each trial. Rethrows the exceptions of `measure`.
  SettingTrials(Measure measure, double end_s, std::function<void(const SettingTrial&)> on_trial);

  // Returns whether there is time for so many further trials.
  bool Goes(int trials = 1) const;

  // Joins the best setting so far with the fields in `added`, and measures the joined setting. Returns its samples/s;
  // nothing if there was no time left or a signal came.
  std::optional<double> Try(const Setting& added);

  // Measures the best setting and the user's setting once more, if there is time. If the best setting is not clearly
  // faster, best() becomes users().
  void Confirm();

  // Returns whether any other setting than the user's was measured.
  bool has_others() const { return has_others_; }

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
  bool has_others_ = false;
  bool out_of_time_ = false;
  std::optional<ExitStatus> stopped_;
};

}  // namespace lockstep
