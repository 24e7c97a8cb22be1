#include "observe/memory/memory_tally.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>

namespace lockstep {
namespace {

enum Phases : size_t { kForward, kBackward, kUpdate, kCount };

const void* At(size_t address) {
  static constexpr std::array<char, 64> kMemory{};
  return &kMemory.at(address);
}

int64_t Of(const OwnerBytes& owners, MemoryOwner owner) {
  return owners[static_cast<size_t>(owner)];
}

int64_t Sum(const OwnerBytes& owners) {
  return std::accumulate(owners.begin(), owners.end(), int64_t{0});
}

MemoryTally Begun() {
  MemoryTally tally(kCount);
  tally.Begin();
  return tally;
}

TEST(MemoryTally, TellsWhatThePeakIsMadeOf) {
  MemoryTally tally = Begun();
  tally.Hold(At(1), 100, MemoryOwner::kParameters);
  tally.Correct(107);
  tally.Enter(kForward);
  tally.Allocate(At(2), 30, MemoryOwner::kUnknown, "blocks.0");
  tally.Allocate(At(3), 20, MemoryOwner::kUnknown, "blocks.1");
  tally.Allocate(At(4), 5, MemoryOwner::kWorkspaces, "blocks.1");
  tally.Free(At(4));
  tally.Allocate(At(5), 3, MemoryOwner::kUnknown, "");
  tally.Enter(kBackward);
  tally.Allocate(At(6), 40, MemoryOwner::kGradients, "");
  tally.Free(At(3));
  tally.Allocate(At(7), 10, MemoryOwner::kUnknown, "");
  tally.Free(At(2));
  tally.Enter(kUpdate);
  tally.Allocate(At(8), 25, MemoryOwner::kMoments, "");

  EXPECT_EQ(tally.peak_bytes(), 100 + 7 + 30 + 20 + 3 + 40);
  EXPECT_EQ(tally.phase_peaks(), (std::vector<int64_t>{162, 200, 185}));
  const OwnerBytes owners = tally.OwnersAtPeak();
  EXPECT_EQ(Of(owners, MemoryOwner::kParameters), 100);
  EXPECT_EQ(Of(owners, MemoryOwner::kOther), 7);
  EXPECT_EQ(Of(owners, MemoryOwner::kActivations), 53);
  EXPECT_EQ(Of(owners, MemoryOwner::kGradients), 40);
  EXPECT_EQ(Of(owners, MemoryOwner::kMoments), 0);
  EXPECT_EQ(Of(owners, MemoryOwner::kWorkspaces), 0);
  EXPECT_EQ(Sum(owners), tally.peak_bytes());
  EXPECT_EQ(tally.ModulesAtPeak(),
            (std::map<std::string, int64_t>{{"blocks.0", 30}, {"blocks.1", 20}}));
  EXPECT_EQ(tally.NewAtPeak(), 93);
}

TEST(MemoryTally, TellsTemporariesOfTheBackwardFromWhatItComputesAgain) {
  MemoryTally tally = Begun();
  tally.Enter(kBackward);
  tally.Allocate(At(1), 10, MemoryOwner::kUnknown, "blocks.0");
  tally.Allocate(At(2), 4, MemoryOwner::kUnknown, "");
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kActivations), 10);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kTemporaries), 4);
}

TEST(MemoryTally, NamesWhatStays) {
  MemoryTally tally = Begun();
  tally.Hold(At(1), 100, MemoryOwner::kParameters);
  tally.Allocate(At(2), 10, MemoryOwner::kUnknown, "linear");
  tally.Allocate(At(3), 50, MemoryOwner::kUnknown, "linear");
  tally.Allocate(At(4), 70, MemoryOwner::kUnknown, "head");
  tally.Free(At(4));
  tally.Enter(kUpdate);
  tally.Allocate(At(5), 20, MemoryOwner::kMoments, "");

  const std::vector<KeptMemory> kept = tally.Kept();
  ASSERT_EQ(kept.size(), 2);
  EXPECT_EQ(kept[0].module, "linear");
  EXPECT_EQ(kept[0].bytes, 60);
  EXPECT_EQ(kept[0].phase, kForward);
  EXPECT_EQ(kept[1].owner, MemoryOwner::kMoments);
  EXPECT_EQ(kept[1].phase, kUpdate);

  tally.Begin();
  EXPECT_TRUE(tally.Kept().empty());
  EXPECT_EQ(tally.now_bytes(), 0);
}

TEST(MemoryTally, CountsAnAddressOnce) {
  MemoryTally tally = Begun();
  tally.Hold(At(1), 100, MemoryOwner::kParameters);
  tally.Hold(At(1), 100, MemoryOwner::kGradients);
  EXPECT_EQ(tally.held_bytes(), 100);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kParameters), 100);
}

// Checks that Correct() counts as kOther the memory that the tally does not know: memory of other threads, and the part
// of an allocator's block beyond the bytes given to Hold().
TEST(MemoryTally, CountsWhatOthersTake) {
  MemoryTally tally = Begun();
  tally.Hold(At(1), 100, MemoryOwner::kSamples);
  tally.Correct(160);
  tally.Free(At(9));  // memory within the 60 bytes that Correct() added
  tally.Correct(140);
  tally.Free(At(1));
  tally.Correct(28);
  EXPECT_EQ(tally.now_bytes(), 28);
  tally.Allocate(At(2), 500, MemoryOwner::kUnknown, "");
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kOther), 28);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kSamples), 0);
  EXPECT_EQ(Sum(tally.OwnersAtPeak()), tally.peak_bytes());
  tally.Correct(600);
  EXPECT_EQ(tally.peak_bytes(), 600);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kOther), 100);
}

// Checks that Own() changes the owner of memory that is already allocated. A library's workspace is allocated while the
// first module that needs the workspace runs, so the workspace has the label of this module until Own() is called.
TEST(MemoryTally, LearnsAfterwardsWhatMemoryIsFor) {
  MemoryTally tally = Begun();
  tally.Hold(At(1), 100, MemoryOwner::kParameters);
  tally.Allocate(At(2), 30, MemoryOwner::kUnknown, "blocks.0");
  tally.Allocate(At(3), 20, MemoryOwner::kUnknown, "blocks.0");
  tally.Free(At(3));
  tally.Allocate(At(4), 5, MemoryOwner::kUnknown, "blocks.1");  // after the peak
  for (const size_t address : {1, 2, 4, 9}) tally.Own(At(address), MemoryOwner::kWorkspaces);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kParameters), 100);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kWorkspaces), 30);
  EXPECT_EQ(Of(tally.OwnersAtPeak(), MemoryOwner::kActivations), 20);
  EXPECT_EQ(tally.ModulesAtPeak(), (std::map<std::string, int64_t>{{"blocks.0", 20}}));
  tally.Free(At(2));
  ASSERT_EQ(tally.Kept().size(), 1);
  EXPECT_EQ(tally.Kept()[0].owner, MemoryOwner::kWorkspaces);
  EXPECT_EQ(tally.Kept()[0].bytes, 5);
}

TEST(MemoryTally, LeavesOutWhatItDoesNotKnow) {
  MemoryTally tally = Begun();
  tally.Hold(At(1), 100, MemoryOwner::kSamples);
  tally.Free(At(9));
  EXPECT_EQ(tally.now_bytes(), 100);
  tally.Free(At(1));
  EXPECT_EQ(tally.now_bytes(), 0);
}

TEST(MemoryTally, AnAddressThatComesAgain) {
  MemoryTally tally = Begun();
  tally.Allocate(At(1), 10, MemoryOwner::kUnknown, "a");
  tally.Allocate(At(1), 30, MemoryOwner::kUnknown, "b");
  EXPECT_EQ(tally.now_bytes(), 30);
  EXPECT_EQ(tally.peak_bytes(), 30);
}

// Compares the tally with a list of allocations, whose bytes are added up again after each event.
TEST(MemoryTally, AddsUpLikeAListOfAllocations) {
  struct Block {
    int64_t bytes;
    MemoryOwner owner;
  };
  constexpr std::array kOwners{MemoryOwner::kGradients, MemoryOwner::kMoments,
                               MemoryOwner::kWorkspaces, MemoryOwner::kActivations};
  MemoryTally tally = Begun();
  std::mt19937 random(1);
  std::map<size_t, Block> list;
  int64_t peak = 0;
  OwnerBytes at_peak{};
  for (int event = 0; event < 3000; ++event) {
    const size_t address = 1 + random() % 40;
    const auto found = list.find(address);
    if (found != list.end()) {
      tally.Free(At(address));
      list.erase(found);
    } else {
      const Block block{static_cast<int64_t>(1 + random() % 1000),
                        kOwners[random() % kOwners.size()]};
      tally.Allocate(At(address), block.bytes, block.owner, "");
      list[address] = block;
    }
    OwnerBytes owners{};
    for (const auto& [unused, block] : list) {
      owners[static_cast<size_t>(block.owner)] += block.bytes;
    }
    ASSERT_EQ(tally.now_bytes(), Sum(owners));
    if (Sum(owners) >= peak) {
      peak = Sum(owners);
      at_peak = owners;
    }
    ASSERT_EQ(tally.peak_bytes(), peak);
    ASSERT_EQ(tally.OwnersAtPeak(), at_peak);
  }
}

}  // namespace
}  // namespace lockstep
