// Every collective, on CPU tensors through MPI and, where each rank has a GPU, on GPU tensors
// through NCCL. Runs on any number of ranks.

#include "comm/communicator.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/alone.h"
#include "comm/mpi_test_world.h"
#include "comm/nccl_communicator.h"

namespace lockstep {
namespace {

enum class Kind { kMpi, kNccl };

class CommunicatorTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kMpi) return;
    if (at::cuda::device_count() < World().world_size()) {
      GTEST_SKIP() << "needs a GPU for each rank: " << World().world_size() << " ranks, "
                   << static_cast<int>(at::cuda::device_count()) << " GPUs";
    }
    device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(World().rank()));
    nccl_ = MakeNccl(device_, World());
  }

  Communicator& communicator() { return nccl_ ? *nccl_ : static_cast<Communicator&>(World()); }
  int64_t rank() { return communicator().rank(); }
  int64_t ranks() { return communicator().world_size(); }
  at::TensorOptions options(at::ScalarType dtype) const {
    return at::TensorOptions(device_).dtype(dtype);
  }

  at::Device device_ = at::kCPU;
  std::unique_ptr<Communicator> nccl_;
};

constexpr at::ScalarType kDtypes[] = {at::kByte, at::kInt, at::kLong, at::kFloat, at::kDouble};

TEST_P(CommunicatorTest, AllReduceSums) {
  for (const at::ScalarType dtype : kDtypes) {
    for (const int64_t size : {1, 7, 1000, 300'000}) {
      const at::Tensor tensor = (at::arange(size, options(at::kLong)) % 10 + rank()).to(dtype);
      communicator().AllReduceSum(tensor).Wait();
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
    communicator().AllReduceSum(tensor).Wait();
    const at::Tensor everyones = at::empty({ranks(), size}, options(at::kFloat));
    communicator().AllGather(everyones, tensor).Wait();
    for (int64_t other = 0; other < ranks(); ++other)
      ASSERT_TRUE(at::equal(everyones[other], tensor));
  }
}

TEST_P(CommunicatorTest, BroadcastTakesTheRootsValues) {
  for (int root = 0; root < ranks(); ++root) {
    // Dtypes that no sum is known for are copied all the same.
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool, at::kBFloat16}) {
      const at::Tensor tensor = at::full({1001}, rank() == root ? 1 : 0, options(dtype));
      communicator().Broadcast(tensor, root).Wait();
      ASSERT_TRUE(at::equal(tensor, at::ones({1001}, options(dtype))));
    }
  }
}

TEST_P(CommunicatorTest, AllGatherPutsTheRanksInOrder) {
  const at::Tensor output = at::empty({ranks() * 5}, options(at::kFloat));
  communicator().AllGather(output, at::full({5}, rank(), options(at::kFloat))).Wait();
  const at::Tensor expected = at::arange(ranks(), options(at::kFloat)).repeat_interleave(5);
  EXPECT_TRUE(at::equal(output, expected));
}

TEST_P(CommunicatorTest, ReduceScatterGivesEachRankItsPart) {
  const at::Tensor input = at::arange(ranks() * 5, options(at::kFloat)) + rank();
  const at::Tensor output = at::empty({5}, options(at::kFloat));
  communicator().ReduceScatterSum(output, input).Wait();
  const at::Tensor expected =
      (at::arange(5, options(at::kFloat)) + rank() * 5) * ranks() + ranks() * (ranks() - 1) / 2;
  EXPECT_TRUE(at::equal(output, expected));
}

TEST_P(CommunicatorTest, ManyOperationsUnderWayCompleteInOrder) {
  const at::Tensor tensor = at::ones({1000}, options(at::kDouble));
  std::vector<Work> works;
  for (int i = 0; i < 10; ++i) works.push_back(communicator().AllReduceSum(tensor));
  for (Work& work : works) work.Wait();
  EXPECT_TRUE(at::equal(tensor, at::full({1000}, std::pow(ranks(), 10), options(at::kDouble))));
  communicator().Barrier();
  communicator().CheckHealth();
}

TEST_P(CommunicatorTest, RefusesTensorsThatItCannotSend) {
  const at::Tensor good = at::zeros({4, 4}, options(at::kFloat));
  EXPECT_THROW((void)communicator().AllReduceSum(good.t()[0].unsqueeze(1).expand({4, 4})), Error);
  EXPECT_THROW((void)communicator().AllReduceSum(good.to(at::kComplexFloat)), Error);
  EXPECT_THROW((void)communicator().AllReduceSum(at::zeros({4}, at::kMeta)), Error);
  EXPECT_THROW(
      (void)communicator().AllGather(at::zeros({ranks() * 16 + 1}, options(at::kFloat)), good),
      Error);
  EXPECT_THROW((void)communicator().ReduceScatterSum(good, good.to(at::kDouble)), Error);
  EXPECT_THROW((void)communicator().Broadcast(good.t().narrow(0, 0, 2), 0), Error);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CommunicatorTest, testing::Values(Kind::kMpi, Kind::kNccl),
                         [](const auto& info) {
                           return info.param == Kind::kMpi ? "Mpi" : "Nccl";
                         });

TEST(Alone, EveryCollectiveIsItsOwnResult) {
  const auto alone = MakeAlone();
  EXPECT_EQ(alone->world_size(), 1);
  const at::Tensor tensor = at::arange(6);
  alone->AllReduceSum(tensor).Wait();
  alone->Broadcast(tensor, 0).Wait();
  EXPECT_TRUE(at::equal(tensor, at::arange(6)));
  const at::Tensor output = at::empty({6}, at::kLong);
  alone->AllGather(output, tensor).Wait();
  EXPECT_TRUE(at::equal(output, tensor));
  output.zero_();
  alone->ReduceScatterSum(output, tensor).Wait();
  EXPECT_TRUE(at::equal(output, tensor));
  alone->Barrier();
}

}  // namespace
}  // namespace lockstep
