// Compares the ranks' flight records, and describes the differences in text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/flight_recorder.h"

namespace lockstep {

// Describes a record, for example "all-reduce of 4160 bytes (bucket 0: linear.bias, linear.weight)".
std::string TextOf(const FlightRecord& record);

// Describes how far a rank has come according to its own record, for example "at step 31, in MPI collective 64:
// all-reduce of ...".
std::string WhereIs(const Flight& flight);

// Says how the ranks disagree: two ranks make different collectives with the same number, some ranks have not come to a
// collective in which others wait, or a collective does not end although all ranks have come to it. Returns nothing if
// none of these is the case.
std::optional<std::string> Disagreement(const std::vector<Flight>& flights);

// Returns a text for the user: the verdicts in the records, a table for each channel with one line for each of its last
// `count` collectives and a column for each rank, and the Disagreement() if there is one.
std::string Story(const std::vector<Flight>& flights, size_t count);

// The records in a run's folder, in the order of the ranks, and one line for each record that cannot be read, with the
// reason. ReadFlights() throws Error: kUsage if there are no records, kData if no record can be read.
struct Flights {
  std::vector<Flight> read;
  std::vector<std::string> damaged;
};
Flights ReadFlights(const std::string& run_dir);

// Returns the path of `rank`'s record.
std::string FlightPath(const std::string& run_dir, int rank);

}  // namespace lockstep
