#include "observe/memory/memory_report.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep {
namespace {

constexpr int64_t kMebi = 1 << 20;
const std::vector<std::string_view> kPhases{"forward", "backward"};

const void* At(size_t address) {
  static constexpr std::array<char, 64> kMemory{};
  return &kMemory.at(address);
}

// Returns the tally of a step with 100 MiB of weights. The forward pass allocates 40 MiB, and the backward pass
// allocates 30 MiB more.
MemoryTally Step() {
  MemoryTally tally(kPhases.size());
  tally.Begin();
  tally.Hold(At(1), 100 * kMebi, MemoryOwner::kParameters);
  tally.Enter(0);
  tally.Allocate(At(2), 10 * kMebi, MemoryOwner::kUnknown, "blocks.0");
  tally.Allocate(At(3), 30 * kMebi, MemoryOwner::kUnknown, "blocks.1");
  tally.Enter(1);
  tally.Allocate(At(4), 30 * kMebi, MemoryOwner::kUnknown, "");
  tally.Free(At(2));
  tally.Free(At(3));
  tally.Free(At(4));
  return tally;
}

using Parts = std::vector<MemoryPart>;

TEST(MemoryReport, TellsOwnersPhasesAndBlocks) {
  const MemoryReport report = ReportOf(Step(), kPhases, {.step = 2});
  EXPECT_EQ(report.peak_bytes, 170 * kMebi);
  EXPECT_EQ(report.owners, (Parts{{"parameters", 100 * kMebi},
                                  {"activations", 40 * kMebi},
                                  {"temporaries", 30 * kMebi}}));
  EXPECT_EQ(report.phases, (Parts{{"forward", 140 * kMebi}, {"backward", 170 * kMebi}}));
  EXPECT_EQ(report.blocks, (Parts{{"blocks.1", 30 * kMebi}, {"blocks.0", 10 * kMebi}}));
  EXPECT_EQ(TextOf(report),
            "memory: at most 170 MiB, in backward: parameters 100 MiB, activations 40 MiB (most in "
            "blocks.1: 30 MiB), temporaries 30 MiB");
}

TEST(MemoryReport, CountsAGraphsPoolBesidesTheTensorsInIt) {
  const MemoryFacts facts{.step = 2,
                          .on_gpu = true,
                          .allocated_peak = 170 * kMebi,
                          .reserved_bytes = 300 * kMebi,
                          .device_bytes = 80 * 1024 * kMebi,
                          .pool_bytes = 75 * kMebi,
                          .captured = true};
  const MemoryReport report = ReportOf(Step(), kPhases, facts);
  EXPECT_EQ(report.peak_bytes, 175 * kMebi);
  EXPECT_EQ(report.owners.back(), (MemoryPart{"graphs", 5 * kMebi}));
  EXPECT_EQ(TextOf(report).find("memory: at most 175 MiB of 80.0 GiB, in backward: "), 0);
}

TEST(MemoryReport, NamesAnEvaluation) {
  MemoryTally held(kPhases.size());
  held.Begin();
  held.Hold(At(1), 100 * kMebi, MemoryOwner::kParameters);
  held.Correct(103 * kMebi);
  const MemoryFacts facts{.on_gpu = true, .allocated_peak = 240 * kMebi, .pool_bytes = 75 * kMebi};
  const MemoryReport report = ReportOfEvaluation(held, facts);
  EXPECT_EQ(report.peak_bytes, (240 + 75) * kMebi);
  EXPECT_EQ(report.owners, (Parts{{"evaluation", 137 * kMebi},
                                  {"parameters", 100 * kMebi},
                                  {"graphs", 75 * kMebi},
                                  {"other", 3 * kMebi}}));
  EXPECT_TRUE(report.blocks.empty());
  EXPECT_EQ(report.phases, (Parts{{"evaluation", 315 * kMebi}}));
}

TEST(MemoryReport, PutsBytesInWords) {
  EXPECT_EQ(BytesText(3 << 10), "3 KiB");
  EXPECT_EQ(BytesText(12 * kMebi), "12 MiB");
  EXPECT_EQ(BytesText(1536 * kMebi), "1.5 GiB");
}

}  // namespace
}  // namespace lockstep
