// Tests the reducer on any number of ranks, with CPU tensors and, if each rank has a GPU, with GPU tensors.

#include "comm/reduce/reducer.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/tensor/gradient_memory.h"
#include "comm/alone.h"
#include "comm/testing/mpi_test_world.h"

namespace lockstep {
namespace {

int64_t Rank() { return World().rank(); }
int64_t Ranks() { return World().world_size(); }
double SumOfRanksFromOne() { return static_cast<double>(Ranks() * (Ranks() + 1)) / 2; }

torch::nn::Sequential MakeModel(const at::TensorOptions& options) {
  torch::manual_seed(3);
  torch::nn::Sequential model(torch::nn::Linear(6, 5), torch::nn::Tanh(), torch::nn::Linear(5, 4),
                              torch::nn::Tanh(), torch::nn::Linear(4, 2));
  model->to(options.device(), c10::typeMetaToScalarType(options.dtype()));
  return model;
}

std::vector<NamedTensor> ParametersOf(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : module.named_parameters())
    parameters.push_back({item.key(), item.value()});
  return parameters;
}

// Returns the input of rank `rank` in micro-batch `micro`.
at::Tensor InputOf(int64_t rank, int64_t micro, const at::TensorOptions& options) {
  return at::randn({3, 6}, at::detail::createCPUGenerator(1000 * rank + micro)).to(options);
}

// Returns the gradients of the sum of all ranks' and micro-batches' losses. This process computes all these gradients
// itself, without communication.
std::vector<at::Tensor> ExpectedGradients(int micros) {
  const at::TensorOptions options(at::kDouble);
  auto model = MakeModel(options);
  at::Tensor loss = torch::zeros({}, at::kDouble);
  for (int64_t rank = 0; rank < Ranks(); ++rank) {
    for (int micro = 0; micro < micros; ++micro) {
      loss = loss + model->forward(InputOf(rank, micro, options)).square().sum();
    }
  }
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

class ReducerTest : public EachChannel {
 protected:
  at::TensorOptions floats() const { return options(at::kFloat); }

  // Runs one step, up to Wait(). Rank r sets each element of scalars() to r + 1.
  void Step(Reducer& reducer, torch::nn::Sequential& model, int micros = 1) {
    reducer.Begin();
    for (int micro = 0; micro < micros; ++micro) {
      const at::Tensor loss = model->forward(InputOf(rank(), micro, floats())).square().sum();
      if (micro + 1 == micros) {
        reducer.scalars().fill_(rank() + 1);
        reducer.ReduceDuringBackward();
      }
      loss.backward();
    }
    reducer.Finish();
    reducer.Wait();
  }

  void ExpectGradients(const torch::nn::Sequential& model, int micros, double tolerance = 1e-5) {
    const std::vector<at::Tensor> expected = ExpectedGradients(micros);
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor gradient = model->parameters()[i].grad().to(at::kCPU, at::kDouble);
      EXPECT_TRUE(at::allclose(gradient, expected[i], tolerance, tolerance));
    }
  }
};

// Checks the gradients and their norm with different sizes of buckets. With a limit of 1 byte, each of the six
// parameters has its own bucket. With 256 bytes, some parameters share a bucket, and with 1 MiB, all parameters share
// one bucket.
TEST_P(ReducerTest, SumsTheGradientsOfRanksAndMicroBatches) {
  for (const int64_t bucket_bytes : {1, 256, 1 << 20}) {
    for (const int micros : {1, 3}) {
      auto model = MakeModel(floats());
      Reducer reducer(ParametersOf(*model), communicator(),
                      {.first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes});
      for (int step = 0; step < 3; ++step) {  // gradients must not accumulate over the steps
        Step(reducer, model, micros);
        ExpectGradients(model, micros);
        if (step == 0) {
          reducer.SettleLayout();
          ExpectGradients(model, micros);
        }
        EXPECT_EQ(reducer.scalars().sum().item<double>(), Reducer::kScalars * SumOfRanksFromOne());
        double square_norm = 0;
        for (const at::Tensor& gradient : ExpectedGradients(micros)) {
          square_norm += gradient.square().sum().item<double>();
        }
        EXPECT_NEAR(reducer.Norm().item<double>(), std::sqrt(square_norm),
                    1e-4 * std::sqrt(square_norm));
      }
    }
  }
}

TEST_P(ReducerTest, BucketsGoInReverseOrderOfTheParametersWhileBackwardRuns) {
  auto model = MakeModel(floats());
  Reducer reducer(ParametersOf(*model), communicator(),
                  {.first_bucket_bytes = 1, .bucket_bytes = 1});
  reducer.Begin();
  const uint64_t first = next_sequence();
  // Counts the buckets that have been launched before autograd computes the gradient of the first layer's weight. At
  // least the four buckets of the other two layers must be among them.
  uint64_t under_way_before_first_layer = 0;
  const auto first_layer = model->parameters()[0];
  first_layer.register_hook(
      [&](const at::Tensor&) { under_way_before_first_layer = next_sequence() - first; });
  const at::Tensor loss = model->forward(InputOf(rank(), 0, floats())).square().sum();
  reducer.ReduceDuringBackward();
  EXPECT_EQ(next_sequence(), first);
  loss.backward();
  EXPECT_GE(under_way_before_first_layer, 4u);
  EXPECT_EQ(next_sequence() - first, 6u);
  reducer.Finish();
  reducer.Wait();
  // In the order of the buckets, the parameters have 2 (bias), 8 (weight), 4, 20, 5 and 30 elements. The size of a
  // bucket is rounded up to a multiple of 16 elements times the number of ranks. The first bucket has 16 more elements
  // for the scalars.
  std::vector<uint64_t> bytes;
  for (const FlightRecord& record : RecordsFrom(first)) bytes.push_back(record.bytes);
  const auto padded = [](uint64_t elements) {
    const uint64_t unit = 16 * Ranks();
    return (elements + unit - 1) / unit * unit * sizeof(float);
  };
  EXPECT_EQ(bytes, (std::vector<uint64_t>{padded(32), padded(16), padded(16), padded(32),
                                          padded(16), padded(32)}));
}

TEST_P(ReducerTest, FromTheSecondStepOnBucketsGoInOrderOfArrival) {
  torch::manual_seed(1);
  const auto parameter = [&] { return torch::randn({40}, floats().requires_grad(true)); };
  // The parameters are registered in the order in which backward reaches them. The reverse of this order, which the
  // reducer assumes in the first step, is therefore wrong.
  const at::Tensor last = parameter();
  const at::Tensor middle = parameter();
  const at::Tensor first = parameter();
  Reducer reducer({{"last", last}, {"middle", middle}, {"first", first}}, communicator(),
                  {.first_bucket_bytes = 1, .bucket_bytes = 1});
  std::vector<std::string> labels[2];
  for (std::vector<std::string>& seen : labels) {
    reducer.Begin();
    const uint64_t begin = next_sequence();
    const at::Tensor loss = ((first.sin() * middle).sin() * last).sum();
    reducer.ReduceDuringBackward();
    loss.backward();
    reducer.Finish();
    reducer.Wait();
    for (const FlightRecord& record : RecordsFrom(begin)) seen.push_back(record.label);
    if (&seen == labels) reducer.SettleLayout();
  }
  EXPECT_EQ(labels[0],
            (std::vector<std::string>{"bucket 0: first", "bucket 1: middle", "bucket 2: last"}));
  EXPECT_EQ(labels[1],
            (std::vector<std::string>{"bucket 0: last", "bucket 1: middle", "bucket 2: first"}));
}

TEST_P(ReducerTest, TheOrderIsThatOfTheRankThatSawMost) {
  torch::manual_seed(1);
  const at::Tensor a = torch::randn({40}, floats().requires_grad(true));
  const at::Tensor b = torch::randn({40}, floats().requires_grad(true));
  const at::Tensor c = torch::randn({40}, floats().requires_grad(true));
  Reducer reducer(
      {{"a", a}, {"b", b}, {"c", c}}, communicator(),
      {.first_bucket_bytes = 1, .bucket_bytes = 1, .missing_gradient = MissingGradient::kZero});
  reducer.Begin();
  reducer.ReduceDuringBackward();
  // Only the last rank gets gradients of all three parameters. The other ranks get only the gradient of c.
  if (rank() == ranks() - 1) {
    ((c.sin() * b).sin() * a).sum().backward();
  } else {
    c.sum().backward();
  }
  reducer.Finish();
  reducer.Wait();
  const at::Tensor before = c.grad().clone();
  reducer.SettleLayout();
  EXPECT_TRUE(at::equal(before, c.grad()));
  reducer.Begin();
  const uint64_t begin = next_sequence();
  reducer.ReduceNow();
  reducer.Wait();
  std::vector<std::string> labels;
  for (const FlightRecord& record : RecordsFrom(begin)) labels.push_back(record.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"bucket 0: a", "bucket 1: b", "bucket 2: c",
                                              "which parameters got gradients"}));
}

TEST_P(ReducerTest, OnlyTheLastMicroBatchCommunicates) {
  auto model = MakeModel(floats());
  Reducer reducer(ParametersOf(*model), communicator(), {});
  reducer.Begin();
  const uint64_t first = next_sequence();
  for (int micro = 0; micro < 3; ++micro) {
    EXPECT_EQ(next_sequence(), first);
    const at::Tensor loss = model->forward(InputOf(rank(), micro, floats())).square().sum();
    if (micro == 2) reducer.ReduceDuringBackward();
    loss.backward();
  }
  reducer.Finish();
  reducer.Wait();
  EXPECT_EQ(next_sequence(), first + 1);
}

TEST_P(ReducerTest, ARankWithoutSamplesTakesPart) {
  for (const bool shard : {false, true}) {
    auto model = MakeModel(floats());
    Reducer reducer(ParametersOf(*model), communicator(),
                    {.first_bucket_bytes = 1, .bucket_bytes = 1, .shard = shard});
    auto alone = MakeModel(floats());
    alone->forward(InputOf(0, 0, floats())).square().sum().backward();
    reducer.Begin();
    if (rank() == 0) {
      const at::Tensor loss = model->forward(InputOf(0, 0, floats())).square().sum();
      reducer.ReduceDuringBackward();
      loss.backward();
    } else {
      reducer.ReduceNow();
    }
    reducer.Finish();
    reducer.Wait();
    for (size_t i = 0; i < alone->parameters().size(); ++i) {
      EXPECT_TRUE(at::allclose(model->parameters()[i].grad(), alone->parameters()[i].grad()));
    }
    reducer.SettleLayout();
  }
}

// Updates this rank's shards by a formula that depends on all bits of the gradients and parameters.
void Update(Reducer& reducer) {
  const at::NoGradGuard no_grad;
  const at::Tensor factor = 0.5 / (reducer.Norm() + 0.1);
  for (size_t stage = 0; stage < reducer.stages(); ++stage) {
    for (const Shard& shard : reducer.shards(stage)) {
      shard.parameter.sub_(0.3 * (factor * shard.gradient).sin() + 0.01 * shard.parameter);
    }
    reducer.GatherParameters(stage);
  }
  reducer.WaitForParameters();
}

TEST_P(ReducerTest, ShardingGivesTheSameParameters) {
  for (const int64_t bucket_bytes : {1, 256, 1 << 20}) {
    auto whole = MakeModel(floats());
    auto sharded = MakeModel(floats());
    const ReducerOptions options{.first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes};
    ReducerOptions shard = options;
    shard.shard = true;
    Reducer whole_reducer(ParametersOf(*whole), communicator(), options);
    Reducer sharded_reducer(ParametersOf(*sharded), communicator(), shard);
    for (int step = 0; step < 5; ++step) {
      Step(whole_reducer, whole);
      Step(sharded_reducer, sharded);
      EXPECT_EQ(sharded_reducer.scalars().sum().item<double>(),
                Reducer::kScalars * SumOfRanksFromOne());
      if (step == 0) {
        whole_reducer.SettleLayout();
        sharded_reducer.SettleLayout();
      }
      Update(whole_reducer);
      Update(sharded_reducer);
      for (size_t i = 0; i < whole->parameters().size(); ++i) {
        const at::Tensor expected = whole->parameters()[i];
        const at::Tensor got = sharded->parameters()[i];
        // NCCL may use another order of summation for a reduce-scatter than for an all-reduce, so the bits may differ.
        if (device().is_cpu()) {
          ASSERT_TRUE(at::equal(got, expected)) << "step " << step;
        } else {
          ASSERT_TRUE(at::allclose(got, expected, 1e-5, 1e-6)) << "step " << step;
        }
      }
      CheckSameOnAllRanks(ParametersOf(*sharded), communicator());
    }
  }
}

TEST_P(ReducerTest, ShardsAreEachParameterOnce) {
  const at::Tensor big = torch::ones({1000}, floats().requires_grad(true));
  const at::Tensor small = torch::ones({3}, floats().requires_grad(true));
  Reducer reducer({{"big", big}, {"small", small}}, communicator(), {.shard = true});
  reducer.Begin();
  reducer.ReduceDuringBackward();
  (big.sum() + small.sum()).backward();
  reducer.Finish();
  reducer.Wait();
  reducer.SettleLayout();
  const int64_t elements = 1003;
  const at::Tensor held = torch::zeros({}, options(at::kLong));
  for (const Shard& shard : reducer.shards(0)) held.add_(shard.parameter.numel());
  EXPECT_LE(held.item<int64_t>(), elements / ranks() + 32);
  communicator().AllReduceSum(held, {}).Wait();
  EXPECT_EQ(held.item<int64_t>(), elements);
}

TEST_P(ReducerTest, GradientsMayTravelIn16Bits) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    for (const bool shard : {false, true}) {
      auto model = MakeModel(floats());
      Reducer reducer(ParametersOf(*model), communicator(),
                      {.reduce_dtype = dtype, .shard = shard});
      const uint64_t first = next_sequence();
      Step(reducer, model);
      ExpectGradients(model, 1, dtype == at::kHalf ? 3e-2 : 2e-1);
      // The scalars are not rounded to `dtype`.
      EXPECT_EQ(reducer.scalars().sum().item<double>(), Reducer::kScalars * SumOfRanksFromOne());
      const std::vector<FlightRecord> records = RecordsFrom(first);
      ASSERT_EQ(records.size(), 2u);
      EXPECT_EQ(records[0].bytes, Reducer::kScalars * sizeof(float));
      const double whole_norm = reducer.scalars().sum().item<double>();
      reducer.SettleLayout();
      const at::Tensor norm = reducer.Norm();
      Step(reducer, model);
      EXPECT_TRUE(at::allclose(reducer.Norm(), norm, 1e-3)) << whole_norm;
      EXPECT_EQ(model->parameters()[0].grad().scalar_type(), at::kFloat);
    }
  }
}

TEST_P(ReducerTest, NamesParametersWithoutGradient) {
  auto model = MakeModel(floats());
  std::vector<NamedTensor> parameters = ParametersOf(*model);
  parameters.push_back({"unused.weight", torch::zeros({3}, floats().requires_grad(true))});
  Reducer reducer(parameters, communicator(), {});
  try {
    Step(reducer, model);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kUsage);
    EXPECT_NE(std::string(error.what()).find("1 of 7 parameters (unused.weight)"),
              std::string::npos)
        << error.what();
  }
}

TEST_P(ReducerTest, NamesAGradientThatComesTwice) {
  const at::Tensor weight = at::ones({3}, at::TensorOptions(device())).requires_grad_();
  Reducer reducer({{"fc.weight", weight}}, communicator(), {});
  reducer.Begin();
  reducer.ReduceDuringBackward();
  const at::Tensor twice = weight * 2;
  twice.sum().backward({}, /*retain_graph=*/true);
  try {
    twice.sum().backward();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kUsage);
    EXPECT_NE(std::string(error.what()).find("fc.weight came twice"), std::string::npos);
  }
  reducer.ReduceNow();
  reducer.Wait();
}

TEST_P(ReducerTest, NamesParametersThatSomeRanksLack) {
  auto model = MakeModel(floats());
  std::vector<NamedTensor> parameters = ParametersOf(*model);
  const at::Tensor extra = torch::ones({3}, floats().requires_grad(true));
  parameters.push_back({"extra", extra});
  Reducer reducer(parameters, communicator(), {.first_bucket_bytes = 1, .bucket_bytes = 1});
  reducer.Begin();
  at::Tensor loss = model->forward(InputOf(rank(), 0, floats())).square().sum();
  if (rank() == 0) loss = loss + extra.sum();
  reducer.ReduceDuringBackward();
  loss.backward();
  if (rank() == 0) {
    EXPECT_NO_THROW(reducer.Finish());
  } else {
    EXPECT_THROW(reducer.Finish(), Error);
  }
  reducer.Wait();
  EXPECT_TRUE(at::equal(extra.grad(), torch::ones({3}, floats())));
}

TEST_P(ReducerTest, TreatsAMissingGradientAsZeroWhereAsked) {
  auto model = MakeModel(floats());
  std::vector<NamedTensor> parameters = ParametersOf(*model);
  const at::Tensor unused = torch::zeros({3}, floats().requires_grad(true));
  parameters.push_back({"unused.weight", unused});
  Reducer reducer(parameters, communicator(), {.missing_gradient = MissingGradient::kZero});
  Step(reducer, model);
  EXPECT_TRUE(at::equal(unused.grad(), torch::zeros({3}, floats())));
  ExpectGradients(model, 1);
  reducer.SettleLayout();
  Step(reducer, model);
  ExpectGradients(model, 1);
}

TEST_P(ReducerTest, TiedWeightsAndMixedDtypesAndChannelsLastKeepTheirViews) {
  for (const bool shard : {false, true}) {
    torch::manual_seed(1);
    const at::Tensor tied = torch::randn({4, 4}, floats().requires_grad(true));
    const at::Tensor wide = torch::randn({4}, options(at::kDouble).requires_grad(true));
    const at::Tensor image = torch::randn({2, 3, 4, 4}, floats())
                                 .contiguous(at::MemoryFormat::ChannelsLast)
                                 .requires_grad_(true);
    const at::Tensor image_values = image.detach().clone();
    Reducer reducer({{"tied", tied}, {"wide", wide}, {"image", image}}, communicator(),
                    {.shard = shard});
    for (int step = 0; step < 2; ++step) {
      const void* memory = tied.grad().data_ptr();
      reducer.Begin();
      reducer.ReduceDuringBackward();
      const at::Tensor x = torch::full({4}, static_cast<double>(rank() + 1), floats());
      (tied.mv(tied.mv(x)).sum() + (wide * x).sum() + image.square().sum()).backward();
      reducer.Finish();
      reducer.Wait();
      EXPECT_EQ(tied.grad().data_ptr(), memory);
      EXPECT_EQ(image.grad().strides(), image.strides());
      EXPECT_TRUE(image.is_contiguous(at::MemoryFormat::ChannelsLast));
      EXPECT_TRUE(at::equal(image, image_values));
      if (step == 0) {
        EXPECT_TRUE(
            at::allclose(wide.grad(), torch::full({4}, SumOfRanksFromOne(), options(at::kDouble))));
        EXPECT_TRUE(at::allclose(image.grad(), 2 * static_cast<double>(ranks()) * image));
        const at::Tensor twin = tied.detach().clone().requires_grad_(true);
        (twin.mv(twin.mv(torch::ones({4}, floats()))).sum() * SumOfRanksFromOne()).backward();
        EXPECT_TRUE(at::allclose(tied.grad(), twin.grad(), 1e-4, 1e-4));
        reducer.SettleLayout();
      }
    }
  }
}

// Computes sum(weight) * factor. backward() writes the weight's gradient itself, and returns no gradient to autograd.
class OwnGradient : public torch::autograd::Function<OwnGradient> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight,
                            double factor) {
    context->saved_data["gradient"] = weight.grad();
    context->saved_data["factor"] = factor;
    return weight.sum() * factor;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::Tensor gradient = context->saved_data["gradient"].toTensor();
    const at::Tensor own =
        gradients[0] * context->saved_data["factor"].toDouble() * at::ones_like(gradient);
    if (GradientMemory::Of(gradient)->TakeOver()) {
      gradient.copy_(own);
    } else {
      gradient.add_(own);
    }
    return {{}, {}};
  }
};

// Checks the gradients of steps in which OwnGradient, autograd, both or neither write the gradient of `weight`. Each
// `Uses` describes one step. The steps differ in whether OwnGradient or autograd writes the first gradient, and in
// which of them wrote gradients in the step before. The gradient of `other` always comes from autograd.
TEST_P(ReducerTest, AGradientMayBeWrittenOverTheLastStepsOne) {
  struct Uses {
    int own;       // how often OwnGradient uses `weight`, with the factors 1, 2, ...
    int autograd;  // how often autograd's sum() uses `weight`, with the factor 10
    int micros = 1;
  };
  for (const bool shard : {false, true}) {
    const at::Tensor weight = torch::ones({70}, floats().requires_grad(true));
    const at::Tensor other = torch::ones({30}, floats().requires_grad(true));
    Reducer reducer({{"weight", weight}, {"other", other}}, communicator(),
                    {.missing_gradient = MissingGradient::kZero, .shard = shard});
    bool was_written_over = false;
    for (const Uses& uses :
         {Uses{1, 0}, Uses{2, 0}, Uses{2, 1}, Uses{0, 2}, Uses{1, 1}, Uses{1, 0, 3}, Uses{0, 0},
          Uses{0, 1}, Uses{1, 0}, Uses{0, 0}, Uses{1, 0}}) {
      reducer.Begin();
      EXPECT_EQ(weight.grad().eq(0).all().item<bool>(), !was_written_over);
      for (int micro = 0; micro < uses.micros; ++micro) {
        at::Tensor loss = other.sum();
        for (int i = 0; i < uses.own; ++i) loss = loss + OwnGradient::apply(weight, i + 1.0);
        for (int i = 0; i < uses.autograd; ++i) loss = loss + weight.sum() * 10;
        if (micro + 1 == uses.micros) reducer.ReduceDuringBackward();
        loss.backward();
      }
      reducer.Finish();
      reducer.Wait();
      const double sum = (uses.own * (uses.own + 1) / 2.0 + 10.0 * uses.autograd) * uses.micros *
                         static_cast<double>(Ranks());
      if (reducer.stages() == 0) {
        EXPECT_TRUE(weight.grad().eq(sum).all().item<bool>());
        reducer.SettleLayout();
      }
      for (const Shard& of : reducer.shards(0)) {
        const double expected =
            of.name == "weight" ? sum : static_cast<double>(uses.micros * Ranks());
        EXPECT_TRUE(of.gradient.eq(expected).all().item<bool>()) << of.name;
      }
      was_written_over = uses.own > 0;
    }
    // In this step an operation calls TakeOver(), but the step ends before the operation has written the gradient,
    // which stays NaN. The gradients of the next step must not contain NaN.
    reducer.Begin();
    GradientMemory::Of(weight.grad())->TakeOver();
    weight.grad().fill_(NAN);
    reducer.ReduceNow();
    reducer.Wait();
    reducer.Begin();
    const at::Tensor loss = OwnGradient::apply(weight, 2.0) + other.sum();
    reducer.ReduceDuringBackward();
    loss.backward();
    reducer.Finish();
    reducer.Wait();
    for (const Shard& of : reducer.shards(0)) {
      const double expected = static_cast<double>((of.name == "weight" ? 2 : 1) * Ranks());
      EXPECT_TRUE(of.gradient.eq(expected).all().item<bool>()) << of.name;
    }
  }
}

bool HasMemory(const at::Tensor& tensor) { return tensor.storage().data() != nullptr; }

// An allocator that fills the memory that it returns with NaN, and that throws after a call of RunOut().
class BadMemory : public c10::Allocator {
 public:
  explicit BadMemory(c10::Allocator* good) : good_(good) {}

  void RunOut() { has_run_out_ = true; }

  at::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK(!has_run_out_, "no memory");
    at::DataPtr memory = good_->allocate(bytes);
    at::from_blob(memory.get(), {static_cast<int64_t>(bytes)},
                  at::TensorOptions(memory.device()).dtype(at::kByte))
        .fill_(0xff);
    return memory;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    good_->copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* good_;
  bool has_run_out_ = false;
};

// A reducer with one rank and a bucket for each parameter. Besides the model's parameters there is the parameter `own`,
// whose gradient is written by OwnGradient.
struct AloneStep {
  AloneStep(at::Device device, const ReducerOptions& options)
      : communicator(MakeAlone(device)),
        model(MakeModel(at::TensorOptions(device).dtype(at::kFloat))),
        own(torch::ones({70}, at::TensorOptions(device).dtype(at::kFloat).requires_grad(true))) {
    parameters = ParametersOf(*model);
    parameters.push_back({"own", own});
    for (const at::Tensor& gradient :
         torch::autograd::grad({ModelsLoss(0) + ModelsLoss(1)}, model->parameters())) {
      expected.push_back(gradient);
    }
    expected.push_back(at::full_like(own, 2 * 3.0));
    for (const at::Tensor& gradient : expected) {
      square_norm += gradient.square().sum().item<double>();
    }
    ReducerOptions small = options;
    small.first_bucket_bytes = small.bucket_bytes = 1;
    reducer.emplace(parameters, *communicator, small);
  }

  at::Tensor ModelsLoss(int64_t micro) {
    return model->forward(InputOf(0, micro, own.options())).square().sum();
  }

  at::Tensor Loss(int64_t micro) {
    // `own` is used first in forward, so its gradient arrives last and, after SettleLayout(), does not lie in bucket 0.
    const at::Tensor owns = OwnGradient::apply(own, 3.0);
    return owns + ModelsLoss(micro);
  }

  // Runs the rest of the step: the backward of `first_loss`, which is Loss(0), and the second micro-batch. Begin() must
  // have been called.
  void FinishFrom(const at::Tensor& first_loss) {
    first_loss.backward();
    const at::Tensor loss = Loss(1);
    reducer->ReduceDuringBackward();
    loss.backward();
    reducer->Finish();
    reducer->Wait();
  }

  void ExpectGradients(double tolerance = 1e-5) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_TRUE(at::allclose(parameters[i].tensor.grad(), expected[i], tolerance, tolerance))
          << parameters[i].name;
    }
  }

  size_t InBucket0() const {
    return reducer->stages() == 0 ? parameters.size() - 1 : reducer->order().front();
  }

  void ExpectMemory(bool lent) const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(HasMemory(parameters[i].tensor.grad()), lent || i == InBucket0())
          << parameters[i].name;
    }
  }

  std::unique_ptr<Communicator> communicator;
  torch::nn::Sequential model;
  at::Tensor own;
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> expected;  // the sums over both micro-batches
  double square_norm = 0;
  std::optional<Reducer> reducer;
};

c10::StorageImpl& StorageOfGradient(const NamedTensor& parameter) {
  return *parameter.tensor.grad().storage().unsafeGetStorageImpl();
}

TEST_P(ReducerTest, WhereARankIsAloneGradientsTakeNoMemoryUntilTheyCome) {
  for (const ReducerOptions& options :
       {ReducerOptions{}, {.reduce_dtype = at::kBFloat16}, {.shard = true}}) {
    const double tolerance = options.reduce_dtype ? 2e-2 : 1e-5;
    BadMemory bad_memory(c10::GetAllocator(device().type()));
    AloneStep alone(device(), options);
    Reducer& reducer = *alone.reducer;
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      reducer.Begin();
      const at::Tensor loss = alone.Loss(0);
      alone.ExpectMemory(false);
      alone.FinishFrom(loss);
      if (step == 0) reducer.SettleLayout();
      alone.ExpectMemory(true);
      alone.ExpectGradients(tolerance);
      EXPECT_NEAR(reducer.Norm().item<double>(), std::sqrt(alone.square_norm),
                  10 * tolerance * std::sqrt(alone.square_norm));
      reducer.ReleaseGradients();
      for (const NamedTensor& parameter : alone.parameters) {
        StorageOfGradient(parameter).set_allocator(&bad_memory);
      }
    }
  }
}

TEST_P(ReducerTest, WhereMemoryForAGradientRunsOutTheStepCanBeRunAgain) {
  for (const ReducerOptions& options :
       {ReducerOptions{}, {.reduce_dtype = at::kBFloat16}, {.shard = true}}) {
    AloneStep alone(device(), options);
    Reducer& reducer = *alone.reducer;
    for (int step = 0; step < 2; ++step) {
      reducer.Begin();
      alone.FinishFrom(alone.Loss(0));
      if (step == 0) reducer.SettleLayout();
      reducer.ReleaseGradients();
    }
    for (const NamedTensor& parameter : alone.parameters) {
      if (HasMemory(parameter.tensor.grad())) continue;
      SCOPED_TRACE(parameter.name);
      c10::StorageImpl& storage = StorageOfGradient(parameter);
      c10::Allocator* const good = storage.allocator();
      BadMemory bad_memory(good);
      bad_memory.RunOut();
      storage.set_allocator(&bad_memory);
      reducer.Begin();
      EXPECT_ANY_THROW(alone.FinishFrom(alone.Loss(0)));
      reducer.GiveUp();
      alone.ExpectMemory(false);
      storage.set_allocator(good);
      reducer.Begin();
      alone.FinishFrom(alone.Loss(0));
      alone.ExpectGradients(options.reduce_dtype ? 2e-2 : 1e-5);
      reducer.ReleaseGradients();
    }
  }
}

TEST_P(ReducerTest, AmongSeveralRanksGradientsKeepTheirMemory) {
  if (ranks() == 1) GTEST_SKIP() << "there is one rank; reducer_test_2 to _4 have several";
  auto model = MakeModel(floats());
  Reducer reducer(ParametersOf(*model), communicator(),
                  {.first_bucket_bytes = 1, .bucket_bytes = 1});
  Step(reducer, model);
  reducer.ReleaseGradients();
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_TRUE(HasMemory(parameter.grad()));
  }
}

// Captures a whole step except SettleLayout() in a CUDA graph, replays it with other inputs, and compares the norm and
// the loss with those of a step that is not captured.
TEST_P(ReducerTest, AStepCanBeCapturedInACudaGraph) {
  if (device().is_cpu()) GTEST_SKIP() << "a GPU's business";
  const auto alone = MakeAlone(device());
  for (const auto& [on, shard] :
       {std::pair(&communicator(), false), {&communicator(), true}, {alone.get(), false}}) {
    auto model = MakeModel(floats());
    const at::Tensor own = torch::ones({70}, floats().requires_grad(true));
    std::vector<NamedTensor> parameters = ParametersOf(*model);
    parameters.push_back({"own", own});
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    Reducer reducer(parameters, *on,
                    {.first_bucket_bytes = 1, .bucket_bytes = 256, .shard = shard});
    const at::Tensor input = torch::zeros({3, 6}, floats());
    const auto step = [&] {
      reducer.Begin();
      const at::Tensor owns = OwnGradient::apply(own, 3.0);
      const at::Tensor loss = owns + model->forward(input).square().sum();
      reducer.scalars()[0].add_(loss.detach());
      reducer.ReduceDuringBackward();
      loss.backward();
      reducer.Finish();
      reducer.Wait();
    };
    const auto gather = [&] {
      for (size_t i = 0; i < reducer.stages(); ++i) reducer.GatherParameters(i);
      reducer.WaitForParameters();
    };
    input.copy_(InputOf(rank(), 0, floats()));
    step();
    reducer.SettleLayout();
    for (int warmup = 0; warmup < 2; ++warmup) {
      step();
      reducer.Norm();
      gather();
      reducer.ReleaseGradients();
    }
    at::cuda::CUDAGraph graph;
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    step();
    const at::Tensor norm = reducer.Norm();
    gather();
    reducer.ReleaseGradients();
    graph.capture_end();

    for (int micro = 0; micro < 3; ++micro) {
      input.copy_(InputOf(rank(), micro, floats()));
      graph.replay();
      const at::Tensor replayed_norm = norm.clone();
      const at::Tensor replayed_loss = reducer.scalars()[0].clone();
      step();
      EXPECT_TRUE(at::allclose(replayed_norm, reducer.Norm(), 1e-5, 1e-6));
      EXPECT_TRUE(at::allclose(replayed_loss, reducer.scalars()[0], 1e-5, 1e-6));
      reducer.ReleaseGradients();
      const bool is_lent = on == alone.get();
      EXPECT_EQ(HasMemory(parameters[reducer.order().back()].tensor.grad()), !is_lent);
    }
  }
}

// Checks that a stage gets further buckets until it has at least 16 MiB, or 64 buckets.
TEST_P(ReducerTest, StagesAreBucketsOfSomeSize) {
  std::vector<NamedTensor> parameters;
  for (int i = 0; i < 9; ++i) {
    parameters.push_back(
        {"p" + std::to_string(i), torch::ones({1 << 20}, floats().requires_grad(true))});
  }
  parameters.push_back({"large", torch::ones({5 << 20}, floats().requires_grad(true))});
  for (const bool shard : {false, true}) {
    Reducer reducer(parameters, communicator(),
                    {.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20, .shard = shard});
    reducer.Begin();
    reducer.ReduceNow();
    reducer.Wait();
    reducer.SettleLayout();
    // Stage 0 has the large parameter (20 MiB). The next three stages have four, four and one of the nine parameters of
    // 4 MiB.
    ASSERT_EQ(reducer.stages(), 4u);
    if (shard) continue;
    EXPECT_EQ(reducer.shards(0).size(), 1u);
    EXPECT_EQ(reducer.shards(1).size(), 4u);
    EXPECT_EQ(reducer.shards(3).size(), 1u);
  }

  parameters.clear();
  for (int i = 0; i < 130; ++i) {
    parameters.push_back({"p" + std::to_string(i), torch::ones({1}, floats().requires_grad(true))});
  }
  Reducer reducer(parameters, communicator(), {.first_bucket_bytes = 1, .bucket_bytes = 1});
  reducer.Begin();
  reducer.ReduceNow();
  reducer.Wait();
  reducer.SettleLayout();
  ASSERT_EQ(reducer.stages(), 3u);
  EXPECT_EQ(reducer.shards(0).size(), Reducer::kMostStageBuckets);
  EXPECT_EQ(reducer.shards(2).size(), 130 - 2 * Reducer::kMostStageBuckets);
}

INSTANTIATE_EACH_CHANNEL(ReducerTest);

TEST(BroadcastFromRankZero, GivesEveryRankRankZerosValues) {
  std::vector<NamedTensor> tensors{
      {"float", torch::full({3, 5}, static_cast<double>(Rank() + 1))},
      {"count", torch::full({}, Rank() + 1, at::kLong)},
      {"transposed", torch::full({3, 5}, static_cast<double>(Rank() + 1)).t()},
      {"leaf", torch::full({2}, static_cast<double>(Rank() + 1), torch::requires_grad())},
      {"empty", torch::ones({0})},
  };
  const uint64_t before = Recorder().State(Channel::kMpi).enqueued;
  BroadcastFromRankZero(tensors, World());
  for (const NamedTensor& named : tensors) {
    EXPECT_TRUE(named.tensor.eq(1).all().item<bool>()) << named.name;
  }
  // There is one broadcast for each of the two dtypes, float32 and int64.
  EXPECT_EQ(Recorder().State(Channel::kMpi).enqueued - before, 2u);
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
