// Tests every collective on CPU tensors through MPI and, if each rank has a GPU, on GPU tensors through NCCL. The test
// runs on any number of ranks.

#include "comm/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "comm/alone.h"
#include "comm/testing/mpi_test_world.h"

namespace lockstep {
namespace {

using CommunicatorTest = EachChannel;

constexpr at::ScalarType kDtypes[] = {at::kByte,     at::kInt,   at::kLong,  at::kHalf,
                                      at::kBFloat16, at::kFloat, at::kDouble};

TEST_P(CommunicatorTest, AllReduceSums) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t size : {1, 7, 1000, 300'000}) {
      const at::Tensor tensor = (at::arange(size, options(at::kLong)) % 10 + rank()).to(dtype);
      communicator().AllReduceSum(tensor, {}).Wait();
      const at::Tensor expected =
          (at::arange(size, options(at::kLong)) % 10 * ranks() + ranks() * (ranks() - 1) / 2)
              .to(dtype);
      ASSERT_TRUE(at::equal(tensor, expected)) << c10::toString(dtype) << " " << size;
    }
  }
}

TEST_P(CommunicatorTest, AllReduceGivesEveryRankTheSameBits) {
  for (const int64_t size : {3, 1000, 100'003}) {
    at::manual_seed(100 + rank());
    const at::Tensor tensor = at::randn({size}, options(at::kFloat));
    communicator().AllReduceSum(tensor, {}).Wait();
    const at::Tensor everyones = at::empty({ranks(), size}, options(at::kFloat));
    communicator().AllGather(everyones, tensor, {}).Wait();
    for (int64_t other = 0; other < ranks(); ++other)
      ASSERT_TRUE(at::equal(everyones[other], tensor));
  }
}

TEST_P(CommunicatorTest, BroadcastTakesTheRootsValues) {
  for (int root = 0; root < ranks(); ++root) {
    // A broadcast also copies dtypes that cannot be summed, such as bool.
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool, at::kBFloat16}) {
      const at::Tensor tensor = at::full({1001}, rank() == root ? 1 : 0, options(dtype));
      communicator().Broadcast(tensor, root, {}).Wait();
      ASSERT_TRUE(at::equal(tensor, at::ones({1001}, options(dtype))));
    }
  }
}

TEST_P(CommunicatorTest, AllGatherPutsTheRanksInOrder) {
  const at::Tensor output = at::empty({ranks() * 5}, options(at::kFloat));
  communicator().AllGather(output, at::full({5}, rank(), options(at::kFloat)), {}).Wait();
  const at::Tensor expected = at::arange(ranks(), options(at::kFloat)).repeat_interleave(5);
  EXPECT_TRUE(at::equal(output, expected));
}

TEST_P(CommunicatorTest, ReduceScatterGivesEachRankItsPart) {
  const at::Tensor input = at::arange(ranks() * 5, options(at::kFloat)) + rank();
  const at::Tensor output = at::empty({5}, options(at::kFloat));
  communicator().ReduceScatterSum(output, input, {}).Wait();
  const at::Tensor expected =
      (at::arange(5, options(at::kFloat)) + rank() * 5) * ranks() + ranks() * (ranks() - 1) / 2;
  EXPECT_TRUE(at::equal(output, expected));
}

TEST_P(CommunicatorTest, ManyOperationsUnderWayCompleteInOrder) {
  const at::Tensor tensor = at::ones({1000}, options(at::kDouble));
  std::vector<Work> works;
  for (int i = 0; i < 10; ++i) works.push_back(communicator().AllReduceSum(tensor, {}));
  for (Work& work : works) work.Wait();
  EXPECT_TRUE(at::equal(tensor, at::full({1000}, std::pow(ranks(), 10), options(at::kDouble))));
  communicator().Barrier({});
  communicator().Poll();
}

TEST_P(CommunicatorTest, RefusesTensorsThatItCannotSend) {
  const at::Tensor good = at::zeros({4, 4}, options(at::kFloat));
  EXPECT_THROW((void)communicator().AllReduceSum(good.t()[0].unsqueeze(1).expand({4, 4}), {}),
               Error);
  EXPECT_THROW((void)communicator().AllReduceSum(good.to(at::kComplexFloat), {}), Error);
  EXPECT_THROW((void)communicator().AllReduceSum(at::zeros({4}, at::kMeta), {}), Error);
  EXPECT_THROW(
      (void)communicator().AllGather(at::zeros({ranks() * 16 + 1}, options(at::kFloat)), good, {}),
      Error);
  EXPECT_THROW((void)communicator().ReduceScatterSum(good, good.to(at::kDouble), {}), Error);
  EXPECT_THROW((void)communicator().Broadcast(good.t().narrow(0, 0, 2), 0, {}), Error);
}

TEST_P(CommunicatorTest, InPlacePartsOfTheWhole) {
  for (const int64_t size : {5, 100'003}) {
    const at::Tensor whole = at::zeros({ranks() * size}, options(at::kFloat));
    const at::Tensor own = whole.narrow(0, rank() * size, size);
    own.fill_(rank() + 1);
    communicator().AllGather(whole, own, {}).Wait();
    const at::Tensor expected =
        (at::arange(ranks(), options(at::kFloat)) + 1).repeat_interleave(size);
    ASSERT_TRUE(at::equal(whole, expected));
    communicator().ReduceScatterSum(own, whole, {}).Wait();
    ASSERT_TRUE(at::equal(own, expected.narrow(0, rank() * size, size) * ranks()));
  }
}

// Checks that a reduce-scatter gives the same bits as an all-reduce. Sharded training therefore gives the same bits as
// training that is not sharded (comm/reduce/reducer.h).
TEST_P(CommunicatorTest, ReduceScatterGivesTheBitsOfAllReduce) {
  if (GetParam() == Channel::kNccl) GTEST_SKIP() << "NCCL promises no such thing";
  for (const int64_t size : {7, 1000, 500'009}) {
    at::manual_seed(rank());
    const at::Tensor whole = at::randn({ranks() * size}, options(at::kFloat));
    const at::Tensor part = at::empty({size}, options(at::kFloat));
    communicator().ReduceScatterSum(part, whole, {}).Wait();
    communicator().AllReduceSum(whole, {}).Wait();
    ASSERT_TRUE(at::equal(part, whole.narrow(0, rank() * size, size)));
  }
}

TEST_P(CommunicatorTest, AllocatedMemoryIsZeroAndSendable) {
  for (const int64_t size : {0, 1, 1000, 20'000'000}) {
    const at::Tensor memory = communicator().Allocate(size, at::kFloat);
    EXPECT_EQ(memory.numel(), size);
    EXPECT_EQ(memory.count_nonzero().item<int64_t>(), 0);
    memory.fill_(rank() + 1);
    communicator().AllReduceSum(memory, {}).Wait();
    EXPECT_TRUE(memory.eq(static_cast<double>(ranks() * (ranks() + 1)) / 2).all().item<bool>());
  }
}

TEST_P(CommunicatorTest, EveryOperationIsInTheFlightRecord) {
  const at::Tensor tensor = at::ones({1000}, options(at::kFloat));
  Recorder().SetStep(7);
  const uint64_t first = next_sequence();
  communicator().AllReduceSum(tensor, communicator().MakeLabel("bucket 3: fc.weight")).Wait();
  communicator().Broadcast(tensor, 0, communicator().MakeLabel("start")).Wait();
  const std::vector<FlightRecord> records = RecordsFrom(first);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sequence, first);
  EXPECT_EQ(records[0].op, Op::kAllReduce);
  EXPECT_EQ(records[0].bytes, 4000u);
  EXPECT_EQ(records[0].label, "bucket 3: fc.weight");
  EXPECT_EQ(records[0].step, 7);
  EXPECT_EQ(records[1].op, Op::kBroadcast);
  EXPECT_EQ(records[1].label, "start");
  for (const FlightRecord& record : records) EXPECT_GE(record.done_ns, record.enqueued_ns);
}

// Checks that Wait() throws the error of an MPI call: rank 1 broadcasts 1000 elements, but rank 0 expects only 10.
TEST(MpiCommunicator, AnMpiErrorComesOutOfWait) {
  if (World().world_size() != 2) GTEST_SKIP() << "two ranks show it";
  const at::Tensor tensor = at::zeros({World().rank() == 0 ? 10 : 1000});
  const auto broadcast = [&] { World().Broadcast(tensor, 1, {}).Wait(); };
  if (World().rank() == 0) {
    EXPECT_THROW(broadcast(), Error);
  } else {
    broadcast();
  }
  World().Barrier({});
}

INSTANTIATE_EACH_CHANNEL(CommunicatorTest);

TEST(Alone, EveryCollectiveIsItsOwnResult) {
  const auto alone = MakeAlone(at::kCPU);
  EXPECT_EQ(alone->world_size(), 1);
  const at::Tensor tensor = at::arange(6);
  alone->AllReduceSum(tensor, {}).Wait();
  alone->Broadcast(tensor, 0, {}).Wait();
  EXPECT_TRUE(at::equal(tensor, at::arange(6)));
  const at::Tensor output = at::empty({6}, at::kLong);
  alone->AllGather(output, tensor, {}).Wait();
  EXPECT_TRUE(at::equal(output, tensor));
  output.zero_();
  alone->ReduceScatterSum(output, tensor, {}).Wait();
  EXPECT_TRUE(at::equal(output, tensor));
  alone->Barrier({});
}

}  // namespace
}  // namespace lockstep
