#include "launch/machine/placement.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "base/error.h"

namespace lockstep {
namespace {

bool OnOneMachine(const Place& a, const Place& b) {
  return std::string_view(a.machine) == b.machine;
}

int64_t RanksOn(const Place& machine, const std::vector<Place>& places) {
  return std::count_if(places.begin(), places.end(),
                       [&](const Place& place) { return OnOneMachine(place, machine); });
}

}  // namespace

size_t MachinesOf(const std::vector<Place>& places) {
  std::set<std::string> names;
  for (const Place& place : places) names.insert(place.machine);
  return names.size();
}

std::vector<int> RanksBeside(const std::vector<Place>& places, int rank) {
  std::vector<int> here;
  for (int other = 0; other < static_cast<int>(places.size()); ++other) {
    if (OnOneMachine(places[other], places[rank])) here.push_back(other);
  }
  return here;
}

void RequireOwnGpus(const std::vector<Place>& places) {
  const auto with_gpu = std::count_if(places.begin(), places.end(),
                                      [](const Place& place) { return place.has_gpu(); });
  if (with_gpu == 0) return;
  if (with_gpu != std::ssize(places)) {
    throw UsageError("{} of {} ranks have a GPU: use machines that are alike, or set device: CPU",
                     with_gpu, places.size());
  }
  for (size_t second = 0; second < places.size(); ++second) {
    for (size_t first = 0; first < second; ++first) {
      const Place& place = places[second];
      if (!OnOneMachine(places[first], place) || places[first].gpu != place.gpu) continue;
      const int64_t ranks = RanksOn(place, places);
      if (place.visible_gpus < ranks && places[first].visible_gpus == place.visible_gpus) {
        throw UsageError(
            "{} ranks but {} visible GPU{} on {}: start fewer ranks, set device: CPU, or see "
            "nvidia-smi and CUDA_VISIBLE_DEVICES",
            ranks, place.visible_gpus, place.visible_gpus == 1 ? "" : "s", place.machine);
      }
      throw UsageError(
          "ranks {} and {} on {} have the same GPU: give each one of its own through "
          "CUDA_VISIBLE_DEVICES, or all ranks of a machine the same list",
          first, second, place.machine);
    }
  }
}

int CoresTogether(const std::vector<Place>& places, int rank) {
  const Place& own = places[rank];
  cpu_set_t all{};
  for (const Place& place : places) {
    if (OnOneMachine(place, own)) CPU_OR(&all, &all, &place.cores);
  }
  return std::max(1, static_cast<int>(std::min<double>(CPU_COUNT(&all), own.most_cores)));
}

int CoresOf(const std::vector<Place>& places, int rank) {
  const Place& own = places[rank];
  double cores = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &own.cores)) continue;
    const auto sharing = std::count_if(places.begin(), places.end(), [&](const Place& place) {
      return OnOneMachine(place, own) && CPU_ISSET(core, &place.cores);
    });
    cores += 1.0 / static_cast<double>(sharing);
  }
  const double time = own.most_cores / static_cast<double>(RanksOn(own, places));
  // The sum of shares such as 1/3 + 1/3 + 1/3 may be a little less than 1. kRounding keeps the cast to int from
  // rounding such a sum down.
  constexpr double kRounding = 1e-6;
  return std::max(1, static_cast<int>(std::min(cores, time) + kRounding));
}

std::vector<Place> BesideTheirGpus(std::vector<Place> places) {
  std::vector<Place> beside = places;
  for (Place& place : beside) CPU_AND(&place.cores, &place.cores, &place.beside_gpu);
  std::vector<bool> gains(places.size());
  for (size_t rank = 0; rank < places.size(); ++rank) {
    gains[rank] = CPU_COUNT(&beside[rank].cores) > 0 && CoresOf(beside, static_cast<int>(rank)) >=
                                                            CoresOf(places, static_cast<int>(rank));
  }
  std::vector<Place> chosen = places;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    bool all = true;
    for (size_t other = 0; other < places.size(); ++other) {
      if (OnOneMachine(places[rank], places[other])) all = all && gains[other];
    }
    if (all) chosen[rank].cores = beside[rank].cores;
  }
  return chosen;
}

std::string WhatIsNarrow(const std::vector<Place>& places, int cores_of_machine) {
  const auto bound = std::count_if(places.begin(), places.end(),
                                   [](const Place& place) { return CPU_COUNT(&place.cores) == 1; });
  if (bound == 0 || cores_of_machine <= RanksOn(places[0], places)) return "";
  return fmt::format(
      "{} of {} ranks {} bound to one core of {}, which all threads of a rank share: start them "
      "with "
      "mpirun --bind-to none",
      bound, places.size(), bound == 1 ? "is" : "are", cores_of_machine);
}

}  // namespace lockstep
