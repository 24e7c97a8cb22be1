// Placement: says on which machine each rank of a job runs, and which GPU and cores the rank has for itself.
//
// what can fail -> what the caller sees -> the test that shows it (launch/machine/placement_test.cc)
//   two ranks on one machine have the same GPU -> Error (kUsage) with the same message on every rank
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
  std::array<unsigned char, 16> gpu{};  // the UUID of the rank's GPU; zeros: no GPU
  cpu_set_t cores{};                    // the cores on which the rank may run
  cpu_set_t beside_gpu{};               // the cores of the GPU's NUMA node; empty: unknown
  int32_t process = 0;                  // the rank's process ID on its machine
  double most_cores = 0;  // limit of the CPU time of all ranks on the machine, in cores

  bool has_gpu() const { return gpu != std::array<unsigned char, 16>{}; }
};

// Returns the number of machines on which the ranks run.
size_t MachinesOf(const std::vector<Place>& places);

// Returns the ranks on the machine of `rank`, in ascending order.
std::vector<int> RanksBeside(const std::vector<Place>& places, int rank);

// Checks that either every rank or no rank has a GPU, and that no two ranks on one machine have the same GPU. Otherwise
// throws Error (kUsage), with the same message on every rank.
void RequireOwnGpus(const std::vector<Place>& places);

// Returns how many cores `rank` has for its threads, at least 1. If several ranks may run on a core, each of these
// ranks counts an equal share of the core. A rank has at most an equal share of its machine's Place::most_cores.
int CoresOf(const std::vector<Place>& places, int rank);

// Returns how many cores all ranks on the machine of `rank` may use together, at least 1.
int CoresTogether(const std::vector<Place>& places, int rank);

// Returns `places`, with each rank restricted to the cores of its GPU's NUMA node. All ranks of a machine keep their
// cores if at least one of these ranks may run on no core of its GPU's NUMA node, or would have fewer cores than before
// (CoresOf()).
std::vector<Place> BesideTheirGpus(std::vector<Place> places);

// Returns a text that tells the user how many ranks are bound to one core each; an empty string if there are no such
// ranks, or if the machine has no more cores than ranks.
std::string WhatIsNarrow(const std::vector<Place>& places, int cores_of_machine);

}  // namespace lockstep
