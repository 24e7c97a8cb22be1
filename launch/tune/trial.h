// TrialRunner: trains a changed config for a few steps, or times its step or its loader, in a process of its own, and
// returns what came of it.
//
// Promise: nothing stays behind. A trial writes into a scratch folder beside the run folder, which is removed after it;
// if this process is killed, the next trial removes it.
//
// Protocol: a trial is the only job of a crew in that folder (launch/crew/crew.h), which has the process and the
// signals. `lockstep bench` prints a line of JSON with what it measured, or with the field `failure`, which says by its
// kind whether a step lacked memory ("out_of_memory") or a library failed with it ("device"); then the setting is no
// good, and the search goes on.
//
// what can fail -> what the caller sees -> the test that shows it (tests/tune_test.py)
//   the trial diverges -> Trial.failure has its error -> test_it_tells_what_it_does
//   a step does not fit in memory -> StepTrial.failure has its error -> test_steps_that_do_not_fit
//   a library fails with such a step -> likewise -> test_steps_that_a_library_cannot_make
//   a rank hangs -> the watchdog of the trial ends it, as below -> test_a_trial_that_hangs
//   data, a rank, a disk fail -> Error with the trial's own status and line -> test_a_trial_that_fails
//   Ctrl-C, SIGTERM -> the trial ends, and Trial.stopped says how -> test_an_interrupt_keeps_what_it_has
//   there is no place for the scratch folder -> Error (kUsage) -> test_wrong_inputs
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/schema/config.pb.h"
#include "launch/crew/crew_file.h"
#include "observe/history/run_log.h"

namespace lockstep {

struct Trial {
  LoggedRun log;        // with all step lines
  double wall_s = 0;    // from the start of the process to its end
  std::string failure;  // why the training ended before its last step; empty: it did not
  std::optional<ExitStatus> stopped;  // the status that a signal to this process asks for
};

// The figures that `lockstep bench step` has measured.
struct StepTrial {
  int64_t ranks = 0;
  int64_t micro_batch = 0;   // samples of a rank
  int64_t accumulation = 0;  // more than asked for if memory ran out
  int64_t samples = 0;       // of the data set
  int64_t parameters = 0;
  config::Precision precision = config::FP32;  // that AUTO chose, if the config has AUTO
  double samples_per_s = 0;
  double step_ms = 0;
  double peak_gib = 0;    // of tensors; 0 on a CPU
  double left_gib = 0;    // what the device had left besides, on a GPU
  double device_gib = 0;  // of the GPU; 0 on a CPU
  double of_peak = 0;     // the share of the device's peak; 0: unknown
  double wall_s = 0;
  // Why nothing was measured: memory ran out, or a library failed with such a step; empty: it was.
  std::string failure;
  bool nothing_fits = false;          // not even micro-batches of one sample
  std::optional<ExitStatus> stopped;  // as in Trial

  bool is_16_bit() const { return precision == config::BF16 || precision == config::FP16; }

  // Whether less than this share of the device's memory is left. Never on a CPU.
  bool LeavesLessThan(double share) const { return left_gib < share * device_gib; }
};

// The figures that `lockstep bench loader` has measured.
struct LoaderTrial {
  double samples_per_s = 0;
  int threads = 0;      // at the end
  int64_t samples = 0;  // of the data set
  double kept_mib = 0;  // of data.images.cache, on each rank
  bool warm = false;    // all samples had been read before
  bool on_gpu = false;  // the samples go to a GPU
  std::string limit;    // what limits it, in words
  double wall_s = 0;
  std::string failure;                // why the loader cannot be used in this way; empty: it can
  std::optional<ExitStatus> stopped;  // as in Trial
};

class TrialRunner {
 public:
  // `command` starts a training: the program and the options before `train`. The trials' files lie in `parent`, which
  // is made if it is missing. A signal that asks to stop ends the trial that is on, or the next one.
  TrialRunner(std::vector<std::string> command, const std::string& parent);

  // Trains `config`, without what its run tells others (observe, profile) and without checkpoints. Throws Error.
  Trial Run(config::Config config);

  // Times `steps` steps of `config` after `warmup` steps. Throws Error.
  StepTrial Measure(config::Config config, int warmup, int steps);

  // Times the loader of `config` for at most `most_s` seconds, after as long a warm-up. `cold`: as if no file had been
  // read before. Throws Error.
  LoaderTrial MeasureLoader(config::Config config, double most_s, bool cold);

 private:
  // How a trial's process ended, and the line of its error; empty: it was done, or a signal to this process stopped it.
  struct Ended {
    JobRecord job;
    std::string line;
    std::optional<ExitStatus> stopped;  // as in Trial
  };
  // Runs command_ with `words`, the path of `config` and `more`, with all files in `folder`. Its output goes to the
  // file `out`.
  Ended Start(config::Config config, const std::string& folder, std::vector<std::string> words,
              const std::vector<std::string>& more, const std::string& out);
  [[noreturn]] static void Fail(const Ended& ended);

  // How `lockstep bench` ended, and the first line of JSON that it printed; null: it printed none.
  struct Measured {
    Ended ended;
    nlohmann::json line;
  };
  Measured Bench(config::Config config, const std::string& what, std::vector<std::string> more);

  std::vector<std::string> command_;
  std::string parent_;
};

}  // namespace lockstep
