// Tuning: what the parts of `lockstep tune` share: the trials, the config with what was found so far, and the output.
//
// A part finds one kind of setting, tells what it tries, and adopts what it found. It is a function like those below, and
// a line of kParts in launch/cli/training/tune.cc.
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
  std::string path;                      // of the config
  std::vector<std::string> assignments;  // of --set
  int ranks = 1;
  int time_s = 60;
  double reserve = 0.05;  // share of a GPU's memory that is to stay free
  bool cold = false;      // files are read from the disk
  bool json = false;
};

class Tuning {
 public:
  // `command` is as for TrialRunner. Throws Error (kUsage) as LoadConfig() does.
  Tuning(const TuneOptions& options, std::vector<std::string> command);

  const TuneOptions& options() const { return options_; }
  TrialRunner& runner() { return runner_; }

  // The config with all that was found so far.
  const config::Config& config() const { return config_; }
  // Returns that config with a setting, too. Throws Error (kUsage) if the config cannot have it.
  config::Config With(const Setting& setting) const;

  // The user's text with all that was found.
  std::string EditedText() const { return EditedConfig(options_.path, text_, edits_); }

  // Takes a value for a field of the config. `why` is what the user reads of it; an edit of the same field is replaced.
  void Adopt(const FieldEdit& edit);
  const std::vector<FieldEdit>& edits() const { return edits_; }
  // Returns the field's value as the user had it: "0.01".
  std::string UsersValue(const std::string& field) const { return FieldText(users_config_, field); }

  // The samples/s of the fastest step that was timed; 0: none was.
  double step_samples_per_s = 0;

  // Prints a line of JSON at once.
  static void PrintLine(const nlohmann::ordered_json& line);
  // Prints that nothing is suggested for `what`.
  void PrintNothing(const std::string& what, const std::string& why) const;
  // "the time was over before all was tried: --time 240", after `before`.
  std::string MoreTime(const std::string& before) const;

 private:
  TuneOptions options_;
  std::string text_;  // of the config, as it was when the command began
  config::Config users_config_, config_;
  TrialRunner runner_;
  std::vector<FieldEdit> edits_;
};

// Return the number with three digits; samples/s have four at least.
std::string RateText(double rate);
std::string SpeedText(double samples_per_s);

// Each part takes about `time_s` seconds, and returns the status if a signal has come. Throws Error.
std::optional<ExitStatus> TuneBatch(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneLargest(Tuning& tuning, double time_s);
std::optional<ExitStatus> TunePrecision(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneGlobalBatch(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneLoader(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneExchange(Tuning& tuning, double time_s);
std::optional<ExitStatus> TuneRate(Tuning& tuning, double time_s);

}  // namespace lockstep
