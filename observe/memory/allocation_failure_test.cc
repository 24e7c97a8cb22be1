#include "observe/memory/allocation_failure.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kGibi = 1 << 30;

// Returns the failure of a request for 3 GiB on a GPU with 80 GiB. Tensors hold 60 GiB, and graphs hold 4 GiB more; 14
// GiB are free in blocks of at most 1 GiB, and 2 GiB are not reserved.
AllocationFailure Pieces() {
  return {.requested_bytes = 3 * kGibi,
          .allocated_bytes = 60 * kGibi,
          .reserved_bytes = 78 * kGibi,
          .free_bytes = 14 * kGibi,
          .usable_bytes = 14 * kGibi,
          .largest_usable_bytes = 1 * kGibi,
          .pool_bytes = 6 * kGibi,
          .device_free_bytes = 2 * kGibi,
          .device_bytes = 80 * kGibi};
}

TEST(AllocationFailure, NamesFragmentation) {
  EXPECT_TRUE(Pieces().IsFragmented());
  EXPECT_EQ(
      WordsOf(Pieces()),
      "3.0 GiB were needed at once; of the GPU's 80.0 GiB, tensors hold 60.0 GiB, CUDA graphs "
      "4.0 GiB more, 14.0 GiB are reserved and free in blocks of at most 1.0 GiB, and 2.0 GiB are "
      "not reserved: the free memory is fragmented");
  EXPECT_NE(RemedyOf(Pieces()).find("expandable_segments:True"), std::string::npos);
}

TEST(AllocationFailure, DoesNotBlameFragmentationForALackOfMemory) {
  AllocationFailure failure = Pieces();
  failure.requested_bytes = 17 * kGibi;  // more than the 14 + 2 GiB that are free
  EXPECT_FALSE(failure.IsFragmented());
  EXPECT_EQ(WordsOf(failure).find("fragmented"), std::string::npos);
  EXPECT_EQ(RemedyOf(failure), "");

  failure.requested_bytes = 16 * kGibi;  // exactly the 14 + 2 GiB that are free
  EXPECT_TRUE(failure.IsFragmented());
}

TEST(AllocationFailure, DoesNotBlameFragmentationWhereABlockWouldHaveDone) {
  AllocationFailure failure = Pieces();
  failure.largest_usable_bytes = 3 * kGibi;
  EXPECT_FALSE(failure.IsFragmented());
  failure = Pieces();
  failure.device_free_bytes = 3 * kGibi;
  EXPECT_FALSE(failure.IsFragmented());
}

// Checks the words if the request can use none of the free blocks, because they belong to other streams or size
// classes.
TEST(AllocationFailure, TellsWhatIsFreeForOthers) {
  AllocationFailure failure = Pieces();
  failure.usable_bytes = 0;
  failure.largest_usable_bytes = 0;
  EXPECT_FALSE(failure.IsFragmented());
  EXPECT_NE(WordsOf(failure).find(", 0 KiB are reserved and free, 14.0 GiB are free for other "
                                  "streams or sizes, and 2.0 GiB are not reserved"),
            std::string::npos)
      << WordsOf(failure);
}

TEST(AllocationFailure, EndsALineWithTheRankAndTheRemedy) {
  EXPECT_EQ(EndOfLine(std::nullopt), "");
  const std::string alone = EndOfLine(FailedAllocation{.failure = Pieces()});
  EXPECT_EQ(alone.find("; 3.0 GiB were needed at once; "), 0) << alone;
  EXPECT_NE(alone.find("fragmented: set PYTORCH_CUDA_ALLOC_CONF"), std::string::npos) << alone;
  const std::string of_many =
      EndOfLine(FailedAllocation{.failure = Pieces(), .rank = 1, .is_only_rank = false});
  EXPECT_EQ(of_many.find("; rank 1: 3.0 GiB were needed at once; "), 0) << of_many;
}

}  // namespace
}  // namespace lockstep
