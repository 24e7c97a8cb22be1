// RanksJson(): compares the ranks of a run by their flight records (comm/flight_recorder.h).
//
// what can fail -> what the caller sees -> the test that shows it (observe/page/rank_table_test.cc)
//   the run has no records, for example because it is one process -> null -> RanksJson.IsNullWithoutRecords
//   a record is damaged, or of another version -> the object has the other ranks, and the reason in `damaged` ->
//     RanksJson.SaysWhatIsDamaged
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Returns null, or an object with
//   ranks  a list with an object for each rank: rank; where (the collective that the rank is in, or has made last);
//          step; late_ms (the mean time by which the rank enqueued a collective later than the rank that enqueued it
//          first); last_share (the share of the collectives that this rank enqueued last); wait_ms (the mean time from
//          enqueueing a collective to the end of the collective)
//   collectives  the number of collectives that late_ms, last_share and wait_ms are computed from: those that the
//          records of all ranks contain and that all ranks have finished, without those before the first step
//   world_size  the number of ranks of the run
//   disagreement  how the ranks' collectives differ from each other; empty: they do not differ
//   verdicts  a list of the faults that ended the run
//   damaged  a list of the records that cannot be read, in words
nlohmann::ordered_json RanksJson(const std::string& run_dir);

}  // namespace lockstep
