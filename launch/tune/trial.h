// TrialRunner: makes trials, and returns their results. A trial is a child process that trains with a changed config
// for a few steps, or that times the training step or the loader of that config.
//
// Promise: a trial leaves no files behind. It writes into a scratch folder beside the run folder, and the scratch
// folder is removed after the trial. If this process is killed, the next trial removes that folder. The destructor
// removes the folders that the constructor made, unless something is in them by then.
//
// Protocol: a trial is the only job of a crew in the scratch folder (launch/crew/crew.h). The crew starts the process
// and handles signals. `lockstep bench` prints one line of JSON with its measurements. If a step cannot be made,
// `lockstep bench` prints a line with the field `failure` instead. The field's `kind` is "out_of_memory" if the step
// did not fit in memory, and "device" if a library failed in the step. The caller can then try other settings.
//
// what can fail -> what the caller sees -> the test that shows it (tests/tune_test.py)
//   the training diverges -> Trial.failure has the error message -> test_it_tells_what_it_does
//   a step does not fit in memory -> StepTrial.failure has the error message -> test_steps_that_do_not_fit
//   a library fails with a step of that size -> StepTrial.failure has the error message
//     -> test_steps_that_a_library_cannot_make
//   a rank hangs -> the trial's watchdog ends the trial, and Error is thrown -> test_a_trial_that_hangs
//   data, a rank or a disk fails -> Error with the trial's exit status and error message -> test_a_trial_that_fails,
//     test_a_trial_whose_rank_gets_a_signal
//   Ctrl-C, SIGTERM -> the trial ends, and Trial.stopped says how -> test_an_interrupt_keeps_what_it_has
//   the scratch folder cannot be made -> Error (kUsage) -> test_wrong_inputs
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/schema/config.pb.h"
#include "observe/history/crew_file.h"
#include "observe/history/run_log.h"

namespace lockstep {

struct Trial {
  LoggedRun log;                      // the training's log, with all of its `step` lines
  double wall_s = 0;                  // seconds from the start of the process to its end
  std::string failure;                // why the training ended early; empty: it came to its end
  std::optional<ExitStatus> stopped;  // the exit status, if a signal asked this process to stop
};

// The figures that `lockstep bench step` has measured.
struct StepTrial {
  int64_t ranks = 0;
  int64_t micro_batch = 0;   // the number of samples of a micro-batch on each rank
  int64_t accumulation = 0;  // number of micro-batches; more than the config's if memory ran out
  int64_t samples = 0;       // size of the data set, in samples
  int64_t parameters = 0;
  config::Precision precision = config::FP32;  // the precision in use (for AUTO: the chosen one)
  double samples_per_s = 0;
  double step_ms = 0;
  double peak_gib = 0;    // the most memory that tensors took at a time; 0 on a CPU
  double left_gib = 0;    // the GPU memory that was left for more tensors
  double device_gib = 0;  // the GPU's memory; 0 on a CPU
  double of_peak = 0;     // FLOP/s as a share of the device's peak; 0: unknown
  double wall_s = 0;
  // Why nothing was measured: memory ran out, or a library failed with a step of that size. Empty: the step was
  // measured.
  std::string failure;
  bool nothing_fits = false;          // true: not even micro-batches of one sample fit in memory
  std::optional<ExitStatus> stopped;  // the exit status, if a signal asked this process to stop

  bool is_16_bit() const { return precision == config::BF16 || precision == config::FP16; }

  // Returns whether less than `share` of the GPU's memory is left. On a CPU it returns false.
  bool LeavesLessThan(double share) const { return left_gib < share * device_gib; }
};

// The figures that `lockstep bench loader` has measured.
struct LoaderTrial {
  double samples_per_s = 0;
  int threads = 0;      // the loader's threads at the end of the measurement
  int64_t samples = 0;  // size of the data set, in samples
  double kept_mib = 0;  // size of the image cache (data.images.cache) on each rank
  bool warm = false;    // true: all samples had been read before the measurement
  bool on_gpu = false;  // true: the samples go to a GPU
  std::string limit;    // what limits the loader's speed, in words
  double wall_s = 0;
  // Why the loader cannot be used with this config; empty if the loader can be used.
  std::string failure;
  std::optional<ExitStatus> stopped;  // the exit status, if a signal asked this process to stop
};

class TrialRunner {
 public:
  // `command` is the beginning of a command line: the program, and the options before the command (`train` or `bench`).
  // The trials' files lie in `parent`, which is made if it is missing. A signal that asks this process to stop ends the
  // current trial or, if no trial runs, the next trial.
  // `end_s` is the end of the time for trials, on the clock of SecondsSinceBoot().
  TrialRunner(std::vector<std::string> command, const std::string& parent, double end_s);
  ~TrialRunner();
  TrialRunner(const TrialRunner&) = delete;
  TrialRunner& operator=(const TrialRunner&) = delete;

  // Returns whether a further trial may end in time: whether one that takes as long as the shortest trial so far would.
  // Before the first trial the answer is true.
  bool HasTime() const;

  // Trains `config` without its sections `observe`, `profile` and `checkpoint`. Throws Error.
  Trial Run(config::Config config);

  // Times `steps` steps of `config` after `warmup` steps. Throws Error.
  StepTrial Measure(config::Config config, int warmup, int steps);

  // Times the loader of `config` for at most `most_s` seconds, after a warm-up of at most `most_s` seconds. If `cold`
  // is true, there is no warm-up, and the files are read from the disk. Throws Error.
  LoaderTrial MeasureLoader(config::Config config, double most_s, bool cold);

 private:
  // How a trial's process ended. `line` is the error message of the trial; it is empty if the trial was done, or if a
  // signal to this process stopped the trial.
  struct Ended {
    JobRecord job;
    std::string line;
    std::optional<ExitStatus> stopped;  // the exit status, if a signal asked this process to stop
  };
  // Runs `command_` followed by `words`, the path of a file with `config`, and `more`. All files of the trial are in
  // `folder`. The standard output of the trial is appended to the file `out`.
  Ended Start(config::Config config, const std::string& folder, std::vector<std::string> words,
              const std::vector<std::string>& more, const std::string& out);
  [[noreturn]] static void Fail(const Ended& ended);

  // How `lockstep bench` ended, and the first line of JSON that it printed; null if it printed none.
  struct Measured {
    Ended ended;
    nlohmann::json line;
  };
  Measured Bench(config::Config config, const std::string& what, std::vector<std::string> more);

  std::vector<std::string> command_;
  std::string parent_;
  std::vector<std::string> made_;  // the folders that the constructor made, from the innermost out
  double end_s_;
  double shortest_s_ = 0;  // seconds that the shortest trial took; 0: there was no trial
};

}  // namespace lockstep
