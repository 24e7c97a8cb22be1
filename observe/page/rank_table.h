// RanksJson(): sets the ranks of a run side by side, by what their flight records (comm/flight_recorder.h) say.
//
// what can fail -> what the caller sees -> the test that shows it (observe/page/rank_table_test.cc)
//   the run has no records, as a run of one process -> null -> RanksJson.IsNullWithoutRecords
//   a record is damaged, or of another version -> the other ranks, and the reason in `damaged` ->
//     RanksJson.SaysWhatIsDamaged
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Returns null, or an object with
//   ranks  a list with an object for each rank: rank; where (the collective that it is in or has made last); step;
//          late_ms (how long after the first rank it came to a collective, on average); last_share (the share of the
//          collectives to which it came last); wait_ms (how long a collective took it, on average)
//   collectives  how many of the last collectives these figures are about
//   world_size  the number of ranks of the run
//   disagreement  what the ranks disagree in; empty: nothing
//   verdicts  a list of the faults that ended the run
//   damaged  a list of what cannot be read, in words
nlohmann::ordered_json RanksJson(const std::string& run_dir);

}  // namespace lockstep
