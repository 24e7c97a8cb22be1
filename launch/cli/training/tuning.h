// Tuning: holds the state that all parts of `lockstep tune` share: the runner of the trials, the config with the
// settings found so far, and the output.
//
// A part is a function that finds one kind of setting: it prints its trials, and adopts the best setting that it finds.
// To add a part, write a function like TuneBatch() below, and add a line to kParts in launch/cli/training/tune.cc.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/edit_config.h"
#include "config/schema/config.pb.h"
#include "launch/tune/setting.h"
#include "launch/tune/trial.h"

namespace lockstep {

struct TuneOptions {
  std::string path;                      // path of the config file
  std::vector<std::string> assignments;  // the values of the option --set
  int ranks = 1;
  int ranks_here = 1;  // how many of the ranks are on this machine
  int time_s = 60;
  double reserve = 0.05;  // share of a GPU's memory that is to stay free
  bool cold = false;      // true: files are read from the disk each time, not from the page cache
  bool json = false;
};

class Tuning {
 public:
  // Loads the config. `command` is the first argument of TrialRunner's constructor. The time for trials begins now.
  // Throws Error (kUsage) if the config cannot be loaded.
  Tuning(const TuneOptions& options, std::vector<std::string> command);

  const TuneOptions& options() const { return options_; }
  TrialRunner& runner() { return runner_; }

  // The config with all settings found so far.
  const config::Config& config() const { return config_; }
  // Returns config() with the values of `setting` in place of its own. Throws Error (kUsage) if the result is no valid
  // config.
  config::Config With(const Setting& setting) const;

  // Returns the text of the user's config file, with all settings found so far.
  std::string EditedText() const { return EditedConfig(options_.path, text_, edits_); }

  // Sets a field of config(). `edit.why` becomes a comment in the config file that the user gets. A later edit of a
  // field replaces an earlier edit of the same field.
  void Adopt(const FieldEdit& edit);
  const std::vector<FieldEdit>& edits() const { return edits_; }
  // Returns the field's value in the user's config, for example "0.01".
  std::string UsersValue(const std::string& field) const { return FieldText(users_config_, field); }

  // The samples/s of the step with the settings that were found; 0: no step was timed.
  double step_samples_per_s = 0;

  // Prints a line of JSON and flushes standard output.
  static void PrintLine(const nlohmann::ordered_json& line);
  // Prints that no setting is suggested for `what`, and the reason `why`.
  void PrintNothing(const std::string& what, const std::string& why) const;
  // Returns `before` followed by, for example, "the time was over before all was tried: --time 240". The suggested time
  // is four times the `time_s` of options().
  std::string MoreTime(const std::string& before) const;

 private:
  TuneOptions options_;
  std::string text_;  // the text of the config file when the command began
  config::Config users_config_, config_;
  TrialRunner runner_;
  std::vector<FieldEdit> edits_;
};

// Returns a learning rate as text, with three significant digits.
std::string RateText(double rate);
// Returns samples/s as text, with at least four significant digits.
std::string SpeedText(double samples_per_s);

// The parts. Each part takes about `time_s` seconds. If a signal asks this process to stop, the part returns the exit
// status for that signal; otherwise the part returns nothing. Each part may throw Error.
std::optional<ExitStatus> TuneBatch(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneLargest(Tuning& tuning, double time_s);
std::optional<ExitStatus> TunePrecision(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneGlobalBatch(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneLoader(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneExchange(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneRate(Tuning& tuning, double time_s);

}  // namespace lockstep
