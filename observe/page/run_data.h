// RunData: makes the data that the page shows of one run, as a JSON object. tests/page_test.py compares this data with
// the log.
//
// Promise: only files of the run folder, and the crew.json beside it, are read, and nothing in the folder is changed. If
// nothing in the folder has changed, and the run has a log and does not train, the object is not made again. Curves have
// at most kMostColumns columns, each with its least and greatest value (observe/page/columns.h). Measured values are
// rounded to six significant digits, and times to a hundredth of a second. The object is valid whatever the files
// contain.
//
// The object:
//   id, name, state, why, start (the log's last `start` line), step, steps, epoch, epochs, left_s, samples_per_s,
//   trained_s, first_time, last_time
//                 `state` is StateInWords() (observe/history/training_history.h)
//   best          {metric, value, step}
//   why_no_log, why_no_config, bad_lines, warnings (their number), last_warnings
//   steps_logged  the number of step lines; not_finite {lines, step}: the number of step lines whose loss is not
//                 finite, and the step of the first of these
//   curves        {step, time, figures: {loss, lr, grad_norm, samples_per_s, data_wait}}: lists of equal length. `time`
//                 is the number of seconds for which jobs had trained the run. A figure is {mean} if each column is
//                 one line of the log, else {mean, least, greatest}
//   epochs_done, evaluations  objects like `curves`, whose figures have the names of the metrics
//   seconds       the log's last `seconds` line; null: none
//   shares        {time, ideal, lost: {CAUSE}}: for each column the fractions of the time since the previous column
//   verdicts      a list of {time, step, verdict, remedy}
//   machine       the log's last `machine` line; readings {time, figures: {cpu_use, memory_used_bytes,
//                 process_memory_bytes}, gpus: [{index, figures: {use, memory_use, memory_used_bytes, power_w,
//                 temperature_c, sm_clock_mhz}}]}
//   memory        the log's last `memory` line; null: none
//   profiles, profiles_in_all  see observe/page/profiles.h
//   ranks         see observe/page/rank_table.h
//   config        the fields of the config as FieldLines() returns them
//   checkpoints   the number of checkpoints; starts: how often the run was started
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "observe/history/run_history.h"
#include "observe/page/profiles.h"

namespace lockstep {

inline constexpr size_t kMostColumns = 1000;

// The curves' horizontal axis: the number of the optimizer step, or the seconds for which jobs trained the run.
enum class CurveAxis { kStep, kTime };

class RunData {
 public:
  // Reads the folder. `id` is the index of the run on the page.
  RunData(const std::string& run_dir, int64_t id);

  // Reads what has changed in the folder. Sets the version of each field that has changed to `version`, which must be
  // greater than in the previous call. Returns whether any field has changed. The fields have version 0 after the
  // constructor.
  bool Refresh(int64_t version);

  const RunHistory& history() const { return history_; }

  // Returns a line for each file that cannot be read: those of RunHistory::Unreadable(), and summaries of profiles.
  std::vector<std::string> Unreadable() const;

  // Returns the id and the fields that have changed since `version`; null if no field has changed.
  nlohmann::ordered_json Since(int64_t version) const;

  // Returns the object's `curves`, computed only from the lines whose x is between `from` and `to`.
  nlohmann::ordered_json CurvesWithin(CurveAxis axis, double from, double to) const;

 private:
  nlohmann::ordered_json Object() const;

  int64_t id_;
  RunHistory history_;
  Profiles profiles_;
  nlohmann::ordered_json object_;
  std::map<std::string, int64_t>
      versions_;  // the version of each field; a field that is not in the map has version 0
};

}  // namespace lockstep
