// RunData: what the page shows of one run, as a JSON object. tests/page_test.py compares it with the log.
//
// Promise: only files of the run folder are read, and nothing in it changes. The object is made anew only when
// something in the folder has changed. Curves have at most kMostColumns columns, each with its least and greatest value
// (observe/page/columns.h); numbers have six significant digits. Whatever the files hold, the object is valid.
//
// The object:
//   id, name, state, why, start (the log's line), step, steps, epoch, epochs, left_s, samples_per_s, trained_s,
//   first_time, last_time
//   best          {metric, value, step}
//   why_no_log, why_no_config, bad_lines, warnings (their number), last_warnings
//   steps_logged  the number of step lines; not_finite {lines, step}: how many have a loss that is not finite, and the
//                 step of the first
//   curves        {step, time, figures: {loss, lr, grad_norm, samples_per_s, data_wait}}: lists that are equally long.
//                 `time` is for how long jobs had trained the run. A figure is {mean} if each column is one line, else
//                 {mean, least, greatest}
//   epochs_done, evaluations  the same with the names of the metrics
//   seconds       the log's last line of this event; null: none
//   shares        {time, ideal, lost: {CAUSE}}: the shares of the time between two columns
//   verdicts      a list of {time, step, verdict, remedy}
//   machine       the log's last line of this event; readings {time, figures: {cpu_use, memory_used_bytes,
//                 process_memory_bytes}, gpus: [{index, figures: {use, memory_use, memory_used_bytes, power_w,
//                 temperature_c, sm_clock_mhz}}]}
//   memory        the log's last line of this event; null: none
//   profiles, profiles_in_all  see observe/page/profiles.h
//   ranks         see observe/page/rank_table.h
//   config        the lines of FieldLines()
//   checkpoints   the number of checkpoints; starts: how often the run was started
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "observe/history/run_history.h"
#include "observe/page/profiles.h"

namespace lockstep {

inline constexpr size_t kMostColumns = 1000;

// The curves' horizontal axis: the number of the optimizer step, or the seconds for which jobs trained the run.
enum class CurveAxis { kStep, kTime };

class RunData {
 public:
  // Reads the folder. `id` is the run's place on the page.
  RunData(const std::string& run_dir, int64_t id);

  // Reads what has changed, and gives the fields of the object that differ from before the number `version`, which must
  // grow. Returns true if any do. The fields that the constructor has read have the version 0.
  bool Refresh(int64_t version);

  const RunHistory& history() const { return history_; }

  // Returns the id and the fields that have changed since `version`; null if there are none.
  nlohmann::ordered_json Since(int64_t version) const;

  // Returns `curves` of the lines whose x is between `from` and `to`.
  nlohmann::ordered_json CurvesWithin(CurveAxis axis, double from, double to) const;

 private:
  nlohmann::ordered_json Object() const;

  int64_t id_;
  RunHistory history_;
  Profiles profiles_;
  nlohmann::ordered_json object_;
  std::map<std::string, int64_t>
      versions_;  // of the fields; those that are not here have the version 0
};

}  // namespace lockstep
