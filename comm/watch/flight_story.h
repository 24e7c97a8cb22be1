// Compares the ranks' flight records and says what they show.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/flight_recorder.h"

namespace lockstep {

// "all-reduce of 4160 bytes (bucket 0: linear.bias, linear.weight)"
std::string TextOf(const FlightRecord& record);

// "at step 31, in MPI collective 64: all-reduce of ...": where a rank is, by its own record.
std::string WhereIs(const Flight& flight);

// What is wrong between the ranks: two that make different collectives under one number, or some
// that have not come to a collective that others wait in. Nothing where the records agree.
std::optional<std::string> Disagreement(const std::vector<Flight>& flights);

// The last `count` collectives of each channel, a line each with the state on every rank, and the
// verdict.
std::string Story(const std::vector<Flight>& flights, size_t count);

// The records in a run's folder, by rank, and why others cannot be read, a line each. Throws Error (kUsage) where there
// are none, kData where none can be read.
struct Flights {
  std::vector<Flight> read;
  std::vector<std::string> damaged;
};
Flights ReadFlights(const std::string& run_dir);

// Where `rank` keeps its record.
std::string FlightPath(const std::string& run_dir, int rank);

}  // namespace lockstep
