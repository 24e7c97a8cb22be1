// Placement: says on which machine each rank of a job runs, and which GPU and cores the rank has for itself.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/placement_test.cc)
//   ranks of one machine have the same GPU -> Error (kUsage), the same on every rank
//     -> Placement.RefusesOneGpuForTwoRanks; tests/bad_input_test.py, test_more_ranks_than_gpus
//   some ranks have a GPU and others not -> Error (kUsage) -> Placement.RefusesGpusForSome
//   ranks are bound to one core -> WhatIsNarrow() says so -> Placement.NoticesRanksOnOneCore
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Of one rank. Travels between ranks byte by byte.
struct Place {
  char machine[65] = {};
  int32_t visible_gpus = 0;
  std::array<unsigned char, 16> gpu{};  // the UUID of its own; zeros: it has none
  cpu_set_t cores{};                    // it may run on
  cpu_set_t beside_gpu{};  // those of its GPU's part of the machine; none: it is not known
  int32_t process = 0;     // its id on that machine
  double most_cores = 0;   // it and the others of its machine get the time of together

  bool has_gpu() const { return gpu != std::array<unsigned char, 16>{}; }
};

// How many machines they are on.
size_t MachinesOf(const std::vector<Place>& places);

// Those on the machine of `rank`.
std::vector<Place> BesideRank(const std::vector<Place>& places, int rank);

// Throws Error (kUsage), the same for all ranks, where they cannot train so.
void RequireOwnGpus(const std::vector<Place>& places);

// The cores' worth of time that `rank` has for its threads, where those that may run on a core share it. At least 1.
int CoresOf(const std::vector<Place>& places, int rank);

// The same places with each rank on cores beside its GPU, on those machines where all ranks have such and none has
// fewer cores for it.
std::vector<Place> BesideTheirGpus(std::vector<Place> places);

// What keeps ranks from their machines' cores, for the user to change; empty: nothing.
std::string WhatIsNarrow(const std::vector<Place>& places, int cores_of_machine);

}  // namespace lockstep
