#include "base/tensor/caching_allocator.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kPlenty = int64_t{1} << 40;

TEST(CachingAllocator, TakesSegmentsAsLibTorchDoes) {
  CachingAllocator allocator(kPlenty);
  allocator.Allocate(1);
  EXPECT_EQ(allocator.allocated_bytes(), 512);
  EXPECT_EQ(allocator.reserved_bytes(), 2 * kMiB);
  allocator.Allocate(kMiB + 1);
  EXPECT_EQ(allocator.reserved_bytes(), 22 * kMiB);
  allocator.Allocate(13 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 22 * kMiB) << "the rest of the segment of 20 MiB suffices";
  allocator.Allocate(30 * kMiB + 1);
  EXPECT_EQ(allocator.reserved_bytes(), 54 * kMiB);
}

TEST(CachingAllocator, JoinsWhatIsFree) {
  CachingAllocator allocator(kPlenty);
  const auto first = allocator.Allocate(6 * kMiB);
  const auto second = allocator.Allocate(6 * kMiB);
  allocator.Free(first);
  allocator.Free(second);
  allocator.Allocate(19 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 20 * kMiB);
  EXPECT_EQ(allocator.allocated_bytes(), 20 * kMiB) << "1 MiB is too little to be split off";
}

TEST(CachingAllocator, EndsAtItsCapacity) {
  CachingAllocator allocator(64 * kMiB);
  const auto large = allocator.Allocate(40 * kMiB);
  EXPECT_EQ(allocator.Allocate(30 * kMiB), CachingAllocator::kNone);
  allocator.Free(large);
  EXPECT_NE(allocator.Allocate(64 * kMiB), CachingAllocator::kNone) << "what is free is given back";
  EXPECT_EQ(allocator.most_reserved_bytes(), 64 * kMiB);
}

TEST(CachingAllocator, KeepsWhatGraphsTook) {
  CachingAllocator allocator(kPlenty);
  allocator.BeginGraph();
  allocator.Free(allocator.Allocate(30 * kMiB));
  allocator.EndGraph();
  EXPECT_EQ(allocator.graph_bytes(), 30 * kMiB);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.reserved_bytes(), 30 * kMiB);
  allocator.Allocate(30 * kMiB);
  EXPECT_EQ(allocator.reserved_bytes(), 60 * kMiB) << "others cannot have it";
}

// Repeats the calls in a file, and checks that CachingAllocator has reserved as many bytes as LibTorch after each
// allocation. The file comes from LibTorch's memory snapshot: it lists what the allocator of LibTorch 2.11 did on an
// H100 while a step of ResNet-50 was captured in a CUDA graph. "a BYTES" is an allocation, "f N" frees the Nth
// allocation, and "s BYTES" is a segment that LibTorch took for the next allocation.
TEST(CachingAllocator, DoesWhatLibTorchDidOnAGpu) {
  std::ifstream file("base/tensor/testing/allocations_of_a_graph.txt");
  CachingAllocator allocator(kPlenty);
  allocator.BeginGraph();
  std::vector<CachingAllocator::Address> given;
  int64_t reserved = 0;
  std::string what;
  int64_t number = 0;
  int lines = 0;
  while (file >> what >> number) {
    ++lines;
    if (what == "s") reserved += number;
    if (what == "f") allocator.Free(given[number - 1]);
    if (what == "a") {
      given.push_back(allocator.Allocate(number));
      ASSERT_EQ(allocator.reserved_bytes(), reserved) << "after line " << lines;
    }
  }
  EXPECT_GT(lines, 1000);
}

}  // namespace
}  // namespace lockstep
