#include "data/feed/micro_batches.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

DeviceBatch BatchOf(int micro) { return {.origin = {.micro = micro, .global_count = 8}}; }

class Counting final : public MicroBatches {
 public:
  DeviceBatch Next() override { return BatchOf(next_++); }
  void Prefetch() override { ++prefetched; }

  int prefetched = 0;

 private:
  int next_ = 0;
};

TEST(PinnedBatches, ComeAgainInTheirOrder) {
  PinnedBatches pinned({BatchOf(0), BatchOf(1)});
  for (const int expected : {0, 1, 0, 1, 0}) {
    EXPECT_EQ(pinned.Next().origin.micro, expected);
    pinned.Prefetch();
  }
}

TEST(KeptBatch, ComesBeforeTheRest) {
  Counting source;
  KeptBatch batches(source.Next(), source);
  for (const int expected : {0, 1, 2}) EXPECT_EQ(batches.Next().origin.micro, expected);
}

TEST(KeptBatch, LetsItsSourcePrefetch) {
  Counting source;
  KeptBatch batches(source.Next(), source);
  batches.Prefetch();
  EXPECT_EQ(source.prefetched, 1);
}

}  // namespace
}  // namespace lockstep
