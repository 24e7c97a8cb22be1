// The reducer on any number of ranks, CPU tensors.

#include "comm/reducer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "base/error.h"
#include "comm/mpi_test_world.h"

namespace lockstep {
namespace {

// Passes operations on and notes them.
class Recording : public Communicator {
 public:
  explicit Recording(Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  Work AllReduceSum(at::Tensor tensor) override {
    reduced.push_back(tensor.numel());
    return inner_.AllReduceSum(tensor);
  }
  Work Broadcast(at::Tensor tensor, int root) override { return inner_.Broadcast(tensor, root); }
  Work AllGather(at::Tensor output, at::Tensor input) override {
    return inner_.AllGather(output, input);
  }
  Work ReduceScatterSum(at::Tensor output, at::Tensor input) override {
    return inner_.ReduceScatterSum(output, input);
  }
  void Barrier() override { inner_.Barrier(); }

  std::vector<int64_t> reduced;

 private:
  Communicator& inner_;
};

int64_t Rank() { return World().rank(); }
int64_t Ranks() { return World().world_size(); }
double SumOfRanksFromOne() { return static_cast<double>(Ranks() * (Ranks() + 1)) / 2; }

torch::nn::Sequential MakeModel(at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(6, 5), torch::nn::Tanh(), torch::nn::Linear(5, 4),
                              torch::nn::Tanh(), torch::nn::Linear(4, 2));
  model->to(dtype);
  return model;
}

std::vector<NamedTensor> ParametersOf(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : module.named_parameters())
    parameters.push_back({item.key(), item.value()});
  return parameters;
}

// What rank `rank` trains on in micro-batch `micro`.
at::Tensor InputOf(int64_t rank, int64_t micro, at::ScalarType dtype = at::kFloat) {
  return at::randn({3, 6}, at::detail::createCPUGenerator(1000 * rank + micro)).to(dtype);
}

// The gradients of the sum of all ranks' and micro-batches' losses, by one process.
std::vector<at::Tensor> ExpectedGradients(int micros) {
  auto model = MakeModel(at::kDouble);
  at::Tensor loss = torch::zeros({}, at::kDouble);
  for (int64_t rank = 0; rank < Ranks(); ++rank) {
    for (int micro = 0; micro < micros; ++micro) {
      loss = loss + model->forward(InputOf(rank, micro, at::kDouble)).square().sum();
    }
  }
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

class ReducerWithBuckets : public testing::TestWithParam<int64_t> {};

TEST_P(ReducerWithBuckets, SumsTheGradientsOfRanksAndMicroBatches) {
  for (const int micros : {1, 3}) {
    auto model = MakeModel();
    Reducer reducer(ParametersOf(*model), World(),
                    {.first_bucket_bytes = GetParam(), .bucket_bytes = GetParam()});
    for (int step = 0; step < 3; ++step) {  // the same gradients each time: nothing is left over
      reducer.Begin();
      for (int micro = 0; micro < micros; ++micro) {
        const at::Tensor loss = model->forward(InputOf(Rank(), micro)).square().sum();
        if (micro + 1 == micros) {
          reducer.scalars().fill_(Rank() + 1);
          reducer.ReduceDuringBackward();
        }
        loss.backward();
      }
      reducer.Finish();
      EXPECT_EQ(reducer.scalars().sum().item<double>(), Reducer::kScalars * SumOfRanksFromOne());
      const std::vector<at::Tensor> expected = ExpectedGradients(micros);
      double square_norm = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const at::Tensor gradient = model->parameters()[i].grad();
        EXPECT_TRUE(at::allclose(gradient.to(at::kDouble), expected[i], 1e-5, 1e-5));
        square_norm += expected[i].square().sum().item<double>();
      }
      double flat_square_norm = 0;
      for (const at::Tensor& flat : reducer.flat_gradients()) {
        flat_square_norm += flat.square().sum().item<double>();
      }
      EXPECT_NEAR(flat_square_norm, square_norm, 1e-4 * square_norm);
    }
  }
}

// 1 byte: each parameter has a bucket of its own; 256: some share one; 1 MiB: all share one.
INSTANTIATE_TEST_SUITE_P(BucketBytes, ReducerWithBuckets, testing::Values(1, 256, 1 << 20));

TEST(Reducer, BucketsGoInReverseOrderOfTheParametersWhileBackwardRuns) {
  Recording recording(World());
  auto model = MakeModel();
  Reducer reducer(ParametersOf(*model), recording, {.first_bucket_bytes = 1, .bucket_bytes = 1});
  reducer.Begin();
  const at::Tensor loss = model->forward(InputOf(Rank(), 0)).square().sum();
  // When autograd comes to the gradient of the first layer's output, later layers' buckets are
  // already under way, and the first layer's are not.
  size_t under_way_before_first_layer = 0;
  const auto first_layer = model->parameters()[0];
  first_layer.register_hook(
      [&](const at::Tensor&) { under_way_before_first_layer = recording.reduced.size(); });
  reducer.ReduceDuringBackward();
  EXPECT_EQ(recording.reduced.size(), 0u);
  const at::Tensor again = model->forward(InputOf(Rank(), 0)).square().sum();
  again.backward();
  EXPECT_GE(under_way_before_first_layer, 4u);
  EXPECT_EQ(recording.reduced.size(), 6u);
  reducer.Finish();
  EXPECT_EQ(recording.reduced.size(), 6u);
  // bias 2, weight 8, bias 4, weight 20, bias 5, weight 30, each rounded up to 16 elements; the
  // first also holds the scalars.
  EXPECT_EQ(recording.reduced, (std::vector<int64_t>{32, 16, 16, 32, 16, 32}));
}

TEST(Reducer, OnlyTheLastMicroBatchCommunicates) {
  Recording recording(World());
  auto model = MakeModel();
  Reducer reducer(ParametersOf(*model), recording, {});
  reducer.Begin();
  for (int micro = 0; micro < 3; ++micro) {
    EXPECT_EQ(recording.reduced.size(), 0u);
    const at::Tensor loss = model->forward(InputOf(Rank(), micro)).square().sum();
    if (micro == 2) reducer.ReduceDuringBackward();
    loss.backward();
  }
  reducer.Finish();
  EXPECT_EQ(recording.reduced.size(), 1u);
}

TEST(Reducer, ARankWithoutSamplesTakesPart) {
  auto model = MakeModel();
  Reducer reducer(ParametersOf(*model), World(), {.first_bucket_bytes = 1, .bucket_bytes = 1});
  reducer.Begin();
  if (Rank() == 0) {
    const at::Tensor loss = model->forward(InputOf(0, 0)).square().sum();
    reducer.ReduceDuringBackward();
    loss.backward();
  } else {
    reducer.ReduceNow();
  }
  reducer.Finish();
  auto alone = MakeModel();
  alone->forward(InputOf(0, 0)).square().sum().backward();
  for (size_t i = 0; i < alone->parameters().size(); ++i) {
    EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), alone->parameters()[i].grad()));
  }
}

TEST(Reducer, NamesParametersWithoutGradient) {
  auto model = MakeModel();
  std::vector<NamedTensor> parameters = ParametersOf(*model);
  parameters.push_back({"unused.weight", torch::zeros({3}, torch::requires_grad())});
  Reducer reducer(parameters, World(), {});
  reducer.Begin();
  reducer.ReduceDuringBackward();
  model->forward(InputOf(Rank(), 0)).square().sum().backward();
  try {
    reducer.Finish();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kUsage);
    EXPECT_NE(std::string(error.what()).find("1 of 7 parameters (unused.weight)"),
              std::string::npos)
        << error.what();
  }
}

TEST(Reducer, TreatsAMissingGradientAsZeroWhereAsked) {
  auto model = MakeModel();
  std::vector<NamedTensor> parameters = ParametersOf(*model);
  const at::Tensor unused = torch::zeros({3}, torch::requires_grad());
  parameters.push_back({"unused.weight", unused});
  Reducer reducer(parameters, World(), {.missing_gradient = MissingGradient::kZero});
  reducer.Begin();
  reducer.ReduceDuringBackward();
  model->forward(InputOf(Rank(), 0)).square().sum().backward();
  reducer.Finish();
  EXPECT_TRUE(at::equal(unused.grad(), torch::zeros({3})));
  EXPECT_TRUE(at::allclose(model->parameters()[0].grad().to(at::kDouble), ExpectedGradients(1)[0],
                           1e-5, 1e-5));
}

TEST(Reducer, TiedWeightsAndMixedDtypesAndChannelsLastKeepTheirViews) {
  torch::manual_seed(1);
  const at::Tensor tied = torch::randn({4, 4}, torch::requires_grad());
  const at::Tensor wide = torch::randn({4}, torch::dtype(at::kDouble).requires_grad(true));
  const at::Tensor image =
      torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_(true);
  Reducer reducer({{"tied", tied}, {"wide", wide}, {"image", image}}, World(), {});
  const void* memory = tied.grad().data_ptr();
  reducer.Begin();
  reducer.ReduceDuringBackward();
  const at::Tensor x = torch::full({4}, static_cast<double>(Rank() + 1));
  (tied.mv(tied.mv(x)).sum() + (wide * x).sum() + image.square().sum()).backward();
  reducer.Finish();
  EXPECT_EQ(tied.grad().data_ptr(), memory);
  EXPECT_EQ(image.grad().strides(), image.strides());
  EXPECT_TRUE(at::allclose(wide.grad(), torch::full({4}, SumOfRanksFromOne(), at::kDouble)));
  EXPECT_TRUE(at::allclose(image.grad(), 2 * static_cast<double>(Ranks()) * image));
  const at::Tensor twin = tied.detach().clone().requires_grad_(true);
  (twin.mv(twin.mv(torch::ones({4}))).sum() * SumOfRanksFromOne()).backward();
  EXPECT_TRUE(at::allclose(tied.grad(), twin.grad(), 1e-4, 1e-4));
}

TEST(BroadcastFromRankZero, GivesEveryRankRankZerosValues) {
  std::vector<NamedTensor> tensors{
      {"float", torch::full({3, 5}, static_cast<double>(Rank() + 1))},
      {"count", torch::full({}, Rank() + 1, at::kLong)},
      {"transposed", torch::full({3, 5}, static_cast<double>(Rank() + 1)).t()},
      {"leaf", torch::full({2}, static_cast<double>(Rank() + 1), torch::requires_grad())},
  };
  BroadcastFromRankZero(tensors, World());
  for (const NamedTensor& named : tensors) {
    EXPECT_TRUE(named.tensor.eq(1).all().item<bool>()) << named.name;
  }
}

TEST(CheckSameOnAllRanks, NamesWhatDiffersByOneBit) {
  const std::vector<NamedTensor> tensors{
      {"same", torch::ones({3})}, {"other", torch::ones({3})}, {"empty", torch::ones({0})}};
  CheckSameOnAllRanks(tensors, World());
  if (Rank() == Ranks() - 1) {
    tensors[1].tensor[2].fill_(std::nextafter(1.0F, 2.0F));
  }
  if (Rank() == Ranks() - 1 && Ranks() > 1) {
    EXPECT_THROW(CheckSameOnAllRanks(tensors, World()), Error);
  } else {
    EXPECT_NO_THROW(CheckSameOnAllRanks(tensors, World()));
  }
}

}  // namespace
}  // namespace lockstep
