#include "launch/machine/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/testing/message_of.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

Place On(const std::string& machine, int visible_gpus, unsigned char gpu,
         const std::vector<int>& cores) {
  Place place{.visible_gpus = visible_gpus, .most_cores = 1e9};
  std::strcpy(place.machine, machine.c_str());
  place.gpu[3] = gpu;
  for (const int core : cores) CPU_SET(core, &place.cores);
  return place;
}

std::string Refusal(const std::vector<Place>& places) {
  return MessageOf(ExitStatus::kUsage, [&] { RequireOwnGpus(places); });
}

TEST(Placement, AllowsAGpuForEach) {
  RequireOwnGpus({On("a", 2, 1, {}), On("a", 2, 2, {})});
  // If Slurm binds GPUs, each rank sees only its own GPU, as number 0.
  RequireOwnGpus({On("a", 1, 1, {}), On("a", 1, 2, {})});
  // GPUs of two machines are different GPUs, even with the same UUID.
  RequireOwnGpus({On("a", 1, 1, {}), On("b", 1, 1, {})});
  RequireOwnGpus({On("a", 0, 0, {}), On("a", 0, 0, {})});
}

TEST(Placement, KnowsWhoIsBesideARank) {
  const std::vector<Place> places = {On("a", 1, 1, {}), On("b", 1, 2, {}), On("a", 1, 3, {})};
  EXPECT_THAT(RanksBeside(places, 2), testing::ElementsAre(0, 2));
  EXPECT_THAT(RanksBeside(places, 1), testing::ElementsAre(1));
}

TEST(Placement, RanksOnCoresOfTheirOwnHaveAllOfThemTogether) {
  const std::vector<Place> places = {On("a", 0, 0, {0}), On("a", 0, 0, {1}), On("b", 0, 0, {0})};
  EXPECT_EQ(CoresTogether(places, 1), 2);
  EXPECT_EQ(CoresTogether(places, 2), 1);
}

TEST(Placement, RefusesOneGpuForTwoRanks) {
  EXPECT_THAT(Refusal({On("a", 1, 1, {}), On("a", 1, 1, {})}),
              HasSubstr("2 ranks but 1 visible GPU on a: start fewer ranks"));
  EXPECT_THAT(Refusal({On("b", 2, 7, {}), On("a", 2, 1, {}), On("a", 2, 2, {}), On("a", 3, 2, {})}),
              HasSubstr("ranks 2 and 3 on a have the same GPU"));
}

TEST(Placement, RefusesGpusForSome) {
  EXPECT_THAT(Refusal({On("a", 1, 1, {}), On("b", 0, 0, {})}),
              HasSubstr("1 of 2 ranks have a GPU"));
}

TEST(Placement, SharesCores) {
  // Both ranks may run on all four cores.
  EXPECT_EQ(CoresOf({On("a", 0, 0, {0, 1, 2, 3}), On("a", 0, 0, {0, 1, 2, 3})}, 0), 2);
  // Each rank is bound to one half of the cores.
  EXPECT_EQ(CoresOf({On("a", 0, 0, {0, 1}), On("a", 0, 0, {2, 3})}, 1), 2);
  // Cores of different machines are different cores, even with the same numbers.
  EXPECT_EQ(CoresOf({On("a", 0, 0, {0, 1}), On("b", 0, 0, {0, 1})}, 1), 2);
  EXPECT_EQ(CoresOf({On("a", 0, 0, {0}), On("a", 0, 0, {0, 1, 2})}, 1), 2);
  const Place third = On("a", 0, 0, {0, 1, 2});
  EXPECT_EQ(CoresOf({third, third, third}, 1), 1);
  // Three ranks share one core.
  const Place one = On("a", 0, 0, {0});
  EXPECT_EQ(CoresOf({one, one, one}, 2), 1);
  // A container with eight cores may use the CPU time of four cores only.
  Place limited = On("a", 0, 0, {0, 1, 2, 3, 4, 5, 6, 7});
  limited.most_cores = 4;
  EXPECT_EQ(CoresOf({limited}, 0), 4);
  EXPECT_EQ(CoresOf({limited, limited}, 0), 2);
}

TEST(Placement, NoticesRanksOnOneCore) {
  const std::vector<Place> bound{On("a", 0, 0, {0}), On("a", 0, 0, {1})};
  EXPECT_THAT(WhatIsNarrow(bound, 64), HasSubstr("2 of 2 ranks are bound to one core of 64"));
  EXPECT_EQ(WhatIsNarrow(bound, 2), "");  // the machine has as many cores as ranks
  EXPECT_EQ(WhatIsNarrow({On("a", 0, 0, {0, 1}), On("a", 0, 0, {0, 1})}, 64), "");
}

// Returns `place` with `cores` as the cores of its GPU's NUMA node.
Place Beside(Place place, const std::vector<int>& cores) {
  for (const int core : cores) CPU_SET(core, &place.beside_gpu);
  return place;
}

std::vector<int> CoresIn(const cpu_set_t& set) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

TEST(Placement, RanksKeepBesideTheirGpus) {
  const std::vector<int> all{0, 1, 2, 3};
  const std::vector<Place> places =
      BesideTheirGpus({Beside(On("a", 2, 1, all), {0, 1}), Beside(On("a", 2, 2, all), {2, 3})});
  EXPECT_EQ(CoresIn(places[0].cores), (std::vector<int>{0, 1}));
  EXPECT_EQ(CoresIn(places[1].cores), (std::vector<int>{2, 3}));
}

TEST(Placement, NoRankLosesCoresToBeBesideItsGpu) {
  const std::vector<int> all{0, 1, 2, 3};
  // Both GPUs are attached to the same half of the cores. If both ranks were bound to this half, the other half would
  // be idle.
  std::vector<Place> places =
      BesideTheirGpus({Beside(On("a", 2, 1, all), {0, 1}), Beside(On("a", 2, 2, all), {0, 1})});
  EXPECT_EQ(CoresIn(places[0].cores), all);
  // A binding by the user is kept, even if its cores are not beside the GPU.
  places = BesideTheirGpus({Beside(On("a", 1, 1, {2, 3}), {0, 1})});
  EXPECT_EQ(CoresIn(places[0].cores), (std::vector<int>{2, 3}));
  // On machine "a" the cores of the GPU's NUMA node are unknown; on machine "b" all cores belong to that node.
  places = BesideTheirGpus({On("a", 1, 1, all), Beside(On("b", 1, 2, all), all)});
  EXPECT_EQ(CoresIn(places[0].cores), all);
  EXPECT_EQ(CoresIn(places[1].cores), all);
}

}  // namespace
}  // namespace lockstep
