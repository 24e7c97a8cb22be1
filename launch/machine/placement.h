// Placement: says on which machine each rank of a job runs, and which GPU and cores the rank has for itself.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/placement_test.cc)
//   two ranks on one machine have the same GPU -> Error (kUsage), the same on every rank
//     -> Placement.RefusesOneGpuForTwoRanks; tests/bad_input_test.py, test_more_ranks_than_gpus
//   some ranks have a GPU and others not -> Error (kUsage) -> Placement.RefusesGpusForSome
//   ranks are bound to a single core each -> WhatIsNarrow() says so -> Placement.NoticesRanksOnOneCore
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// The place of one rank. Ranks send this struct to each other as bytes.
struct Place {
  char machine[65] = {};
  int32_t visible_gpus = 0;
  std::array<unsigned char, 16> gpu{};  // the UUID of the rank's GPU; zeros: it has none
  cpu_set_t cores{};                    // the cores on which the rank may run
  cpu_set_t beside_gpu{};               // the cores of the GPU's NUMA node; empty: unknown
  int32_t process = 0;                  // the process id on that machine
  double most_cores = 0;  // how many cores' time the ranks of the machine may use together

  bool has_gpu() const { return gpu != std::array<unsigned char, 16>{}; }
};

// Returns on how many machines the ranks are.
size_t MachinesOf(const std::vector<Place>& places);

// Returns the ranks on the machine of `rank`, in ascending order.
std::vector<int> RanksBeside(const std::vector<Place>& places, int rank);

// Throws Error (kUsage), the same on all ranks, if two ranks have the same GPU or if only some ranks have a GPU.
void RequireOwnGpus(const std::vector<Place>& places);

// Returns how many cores `rank` has for its threads, at least 1. If several ranks may run on a core, each of them
// counts an equal share of it.
int CoresOf(const std::vector<Place>& places, int rank);

// Returns how many cores all ranks on the machine of `rank` have together, at least 1.
int CoresTogether(const std::vector<Place>& places, int rank);

// Returns the same places, with each rank restricted to the cores of its GPU's NUMA node. The ranks of a machine keep
// their cores if any of them may run on no core of its GPU's NUMA node, or would have fewer cores than before.
std::vector<Place> BesideTheirGpus(std::vector<Place> places);

// Returns a text that tells the user what keeps the ranks from using all cores of their machines; empty if nothing
// does.
std::string WhatIsNarrow(const std::vector<Place>& places, int cores_of_machine);

}  // namespace lockstep
