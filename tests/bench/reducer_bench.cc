// What the gradient exchange costs a step: a rank's step together with all ranks over the same step
// alone, in the same processes. For each of
//   mpirun -n N reducer_bench gpt2   GPT-2 124M in ATen, 16 x 1024 tokens a GPU, bf16 autocast
//   mpirun -n N reducer_bench mlp    0.93M parameters, batch 512 a rank, fp32: also the host's time
// it prints a JSON line a variant: medians of steps, timed on the device where there is one. GPUs where each rank has one, CPUs otherwise.

#include <ATen/autocast_mode.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include "comm/alone.h"
#include "comm/mpi_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/reducer.h"
#include "trainer/ops/step_values.h"
#include "trainer/optimizer.h"

namespace lockstep {
namespace {

// A model with synthetic data that is on the device already.
struct Workload {
  std::vector<NamedTensor> parameters;
  std::function<at::Tensor()> loss;
};

Workload MakeMlp(at::Device device) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  int64_t width = 256;
  for (int layer = 0; layer < 4; ++layer) {
    net->push_back(torch::nn::Linear(width, 512));
    net->push_back(torch::nn::BatchNorm1d(512));
    net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Dropout(0.1));
    width = 512;
  }
  net->push_back(torch::nn::Linear(width, 10));
  net->to(device);
  const at::Tensor input = torch::randn({512, 256}, device);
  const at::Tensor target = torch::randint(10, {512}, at::TensorOptions(device).dtype(at::kLong));
  Workload work;
  for (const auto& item : net->named_parameters())
    work.parameters.push_back({item.key(), item.value()});
  work.loss = [net, input, target]() mutable {
    return torch::nn::functional::cross_entropy(net->forward(input), target);
  };
  return work;
}

constexpr int64_t kVocabulary = 50304;
constexpr int64_t kTokens = 1024;
constexpr int64_t kWidth = 768;
constexpr int64_t kHeads = 12;
constexpr int64_t kLayers = 12;
constexpr int64_t kBatch = 16;

// One transformer block.
struct Block {
  at::Tensor ln1_w, ln1_b, qkv_w, qkv_b, proj_w, proj_b, ln2_w, ln2_b, fc_w, fc_b, out_w, out_b;

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor normal = at::layer_norm(x, {kWidth}, ln1_w, ln1_b);
    const auto qkv = at::linear(normal, qkv_w, qkv_b)
                         .view({kBatch, kTokens, 3, kHeads, kWidth / kHeads})
                         .permute({2, 0, 3, 1, 4})
                         .unbind(0);
    const at::Tensor mixed =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, /*is_causal=*/true)
            .transpose(1, 2)
            .reshape({kBatch, kTokens, kWidth});
    const at::Tensor y = x + at::linear(mixed, proj_w, proj_b);
    const at::Tensor hidden =
        at::gelu(at::linear(at::layer_norm(y, {kWidth}, ln2_w, ln2_b), fc_w, fc_b), "tanh");
    return y + at::linear(hidden, out_w, out_b);
  }
};

Workload MakeGpt2(at::Device device) {
  torch::manual_seed(1);
  Workload work;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double fill = 0) {
    at::Tensor value =
        shape.size() > 1 ? 0.02 * torch::randn(shape, device) : torch::full(shape, fill, device);
    value.requires_grad_(true);
    work.parameters.push_back({name, value});
    return value;
  };
  const at::Tensor wte = add("wte", {kVocabulary, kWidth});
  const at::Tensor wpe = add("wpe", {kTokens, kWidth});
  std::vector<Block> blocks;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string h = fmt::format("h.{}.", layer);
    blocks.push_back({.ln1_w = add(h + "ln_1.weight", {kWidth}, 1),
                      .ln1_b = add(h + "ln_1.bias", {kWidth}),
                      .qkv_w = add(h + "attn.c_attn.weight", {3 * kWidth, kWidth}),
                      .qkv_b = add(h + "attn.c_attn.bias", {3 * kWidth}),
                      .proj_w = add(h + "attn.c_proj.weight", {kWidth, kWidth}),
                      .proj_b = add(h + "attn.c_proj.bias", {kWidth}),
                      .ln2_w = add(h + "ln_2.weight", {kWidth}, 1),
                      .ln2_b = add(h + "ln_2.bias", {kWidth}),
                      .fc_w = add(h + "mlp.c_fc.weight", {4 * kWidth, kWidth}),
                      .fc_b = add(h + "mlp.c_fc.bias", {4 * kWidth}),
                      .out_w = add(h + "mlp.c_proj.weight", {kWidth, 4 * kWidth}),
                      .out_b = add(h + "mlp.c_proj.bias", {kWidth})});
  }
  const at::Tensor ln_w = add("ln_f.weight", {kWidth}, 1);
  const at::Tensor ln_b = add("ln_f.bias", {kWidth});
  const at::TensorOptions integers = at::TensorOptions(device).dtype(at::kLong);
  const at::Tensor tokens = torch::randint(50257, {kBatch, kTokens}, integers);
  const at::Tensor targets = tokens.roll(-1, 1).view(-1);
  const at::Tensor positions = torch::arange(kTokens, integers);
  work.loss = [=] {
    at::Tensor x = at::embedding(wte, tokens) + at::embedding(wpe, positions);
    for (const Block& block : blocks) x = block(x);
    const at::Tensor logits = at::linear(at::layer_norm(x, {kWidth}, ln_w, ln_b), wte);
    return at::cross_entropy_loss(logits.view({-1, kVocabulary}), targets);
  };
  return work;
}

// The whole step of a workload: what a trainer does.
class Stepper {
 public:
  Stepper(Workload work, Communicator& communicator, const ReducerOptions& options,
          at::Device device, bool autocast)
      : work_(std::move(work)),
        reducer_(work_.parameters, communicator, options),
        device_(device),
        autocast_(autocast) {
    Backward();
    reducer_.Finish();
    reducer_.Wait();
    reducer_.SettleLayout();
    config::Optimizer adamw;
    adamw.set_lr(1e-4);
    values_ = at::zeros({ops::kStepValues}, at::TensorOptions(device).dtype(at::kFloat));
    optimizer_ = std::make_unique<Optimizer>(adamw, reducer_, values_, /*scales_loss=*/false);
    optimizer_->SetLearningRate(adamw.lr());
  }

  // Calls `after_backward` between backward and the rest.
  template <typename AfterBackward>
  void Step(const AfterBackward& after_backward) {
    Backward();
    after_backward();
    reducer_.Finish();
    values_[ops::kUpdates].add_(1);
    for (size_t stage = 0; stage < reducer_.stages(); ++stage) {
      reducer_.Wait(stage);
      optimizer_->Update(stage);
      reducer_.GatherParameters(stage);
    }
  }

 private:
  void Backward() {
    reducer_.Begin();
    reducer_.WaitForParameters();
    at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCUDA, autocast_ && device_.is_cuda());
    const at::Tensor loss = work_.loss();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    reducer_.scalars()[0].add_(loss.detach());
    reducer_.ReduceDuringBackward();
    loss.backward();
  }

  Workload work_;
  Reducer reducer_;
  at::Device device_;
  bool autocast_;
  at::Tensor values_;
  std::unique_ptr<Optimizer> optimizer_;
};

void Synchronize(at::Device device) {
  if (device.is_cuda()) at::cuda::getCurrentCUDAStream(device.index()).synchronize();
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Milliseconds, medians, from the device's clock where there is one.
struct Times {
  double step_ms = 0;
  double backward_ms = 0;  // to the end of backward
};

Times TimeSteps(Stepper& stepper, at::Device device, int steps) {
  for (int i = 0; i < 10; ++i) stepper.Step([] {});
  Synchronize(device);
  std::vector<double> whole, backward;
  if (device.is_cuda()) {
    std::vector<at::cuda::CUDAEvent> begins, backward_ends;
    for (int i = 0; i <= steps; ++i) {
      begins.emplace_back(cudaEventDefault);
      backward_ends.emplace_back(cudaEventDefault);
    }
    for (int i = 0; i < steps; ++i) {
      begins[i].record();
      stepper.Step([&] { backward_ends[i].record(); });
    }
    begins[steps].record();
    Synchronize(device);
    for (int i = 0; i < steps; ++i) {
      whole.push_back(begins[i].elapsed_time(begins[i + 1]));
      backward.push_back(begins[i].elapsed_time(backward_ends[i]));
    }
  } else {
    using Clock = std::chrono::steady_clock;
    const auto ms = [](Clock::duration time) {
      return std::chrono::duration<double, std::milli>(time).count();
    };
    for (int i = 0; i < steps; ++i) {
      const auto begin = Clock::now();
      stepper.Step([&] { backward.push_back(ms(Clock::now() - begin)); });
      whole.push_back(ms(Clock::now() - begin));
    }
  }
  return {MedianOf(whole), MedianOf(backward)};
}

// Microseconds that the host takes for `call`, the mean of `count`; the device is not waited for in
// between.
double HostTime(const std::function<void()>& call, at::Device device, int count) {
  Synchronize(device);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) call();
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  Synchronize(device);
  return us / count;
}

// The step of MakeMlp's workload with gradients in place and nothing of the reducer's.
class BareStep {
 public:
  explicit BareStep(at::Device device)
      : work_(MakeMlp(device)),
        lr_(at::full({}, 1e-4, device)),
        step_(at::zeros({}, device)),
        loss_(at::zeros({}, device)) {
    for (auto& [name, parameter] : work_.parameters) {
      parameter.mutable_grad() = at::zeros_like(parameter.detach());
      parameters_.push_back(parameter.detach());
      gradients_.push_back(parameter.grad());
      mean_.push_back(at::zeros_like(parameter.detach()));
      mean_square_.push_back(at::zeros_like(parameter.detach()));
      steps_.push_back(step_);
    }
  }

  void Step() {
    const at::Tensor loss = work_.loss();
    loss_.add_(loss.detach());
    loss.backward();
    step_.add_(1);
    at::_fused_adamw_(parameters_, gradients_, mean_, mean_square_, {}, steps_, lr_, 0.9, 0.999, 0,
                      1e-8, false, false);
  }

 private:
  Workload work_;
  at::Tensor lr_, step_, loss_;
  std::vector<at::Tensor> parameters_, gradients_, mean_, mean_square_, steps_;
};

// `only`: the name of one variant; empty: all.
void Run(const std::string& workload, const std::string& only, int64_t bucket_bytes,
         MpiCommunicator& mpi, FlightRecorder& recorder) {
  const bool on_gpu = at::cuda::device_count() >= mpi.world_size();
  const at::Device device =
      on_gpu ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(mpi.rank())) : at::kCPU;
  std::unique_ptr<Communicator> nccl;
  if (on_gpu) {
    c10::cuda::set_device(device.index());
    at::globalContext().setAllowTF32CuBLAS(workload == "gpt2");
    if (mpi.world_size() > 1) nccl = MakeNccl(device, mpi, recorder);
  }
  Communicator& ranks = nccl ? *nccl : static_cast<Communicator&>(mpi);
  const std::unique_ptr<Communicator> alone = MakeAlone(device);
  const Label label = mpi.MakeLabel("benchmark");
  const bool gpt2 = workload == "gpt2";
  const auto make = [&] { return gpt2 ? MakeGpt2(device) : MakeMlp(device); };

  struct Variant {
    std::string name;
    ReducerOptions options;
  };
  const std::vector<Variant> variants{
      {"fp32", {}},
      {"bf16", {.reduce_dtype = at::kBFloat16}},
      {"shard", {.shard = true}},
      {"shard_bf16", {.reduce_dtype = at::kBFloat16, .shard = true}}};
  for (const Variant& variant : variants) {
    if (!only.empty() && only != variant.name) continue;
    const int steps = gpt2 ? 30 : 200;
    Times alone_times;
    {
      Stepper stepper(make(), *alone, {}, device, gpt2);
      mpi.Barrier(label);
      alone_times = TimeSteps(stepper, device, steps);
    }
    ReducerOptions reducer = variant.options;
    reducer.bucket_bytes = bucket_bytes;
    Stepper stepper(make(), ranks, reducer, device, gpt2);
    mpi.Barrier(label);
    const Times times = TimeSteps(stepper, device, steps);
    // No step of all ranks is faster than the slowest rank's.
    const at::Tensor alone_of_all = at::zeros({mpi.world_size()}, at::kDouble);
    mpi.AllGather(alone_of_all, at::full({1}, alone_times.step_ms, at::kDouble), label).Wait();
    const double slowest_ms = alone_of_all.max().item<double>();
    if (mpi.rank() == 0) {
      fmt::print(
          "{{\"workload\":\"{}\",\"ranks\":{},\"device\":\"{}\",\"variant\":\"{}\",\"alone_ms\":{:."
          "3f},"
          "\"slowest_alone_ms\":{:.3f},\"together_ms\":{:.3f},\"ratio\":{:.4f},\"ratio_to_"
          "slowest\":{:.4f},"
          "\"alone_backward_ms\":{:.3f},\"together_backward_ms\":{:.3f}}}\n",
          workload, mpi.world_size(), device.str(), variant.name, alone_times.step_ms, slowest_ms,
          times.step_ms, times.step_ms / alone_times.step_ms, times.step_ms / slowest_ms,
          alone_times.backward_ms, times.backward_ms);
      std::fflush(stdout);
    }
  }
  if (gpt2) return;
  // In turns, because a host's speed drifts.
  BareStep bare(device);
  Stepper stepper(make(), ranks, {}, device, false);
  std::vector<double> without, with;
  for (int round = 0; round < 9; ++round) {
    mpi.Barrier(label);
    without.push_back(HostTime([&] { bare.Step(); }, device, 60));
    mpi.Barrier(label);
    with.push_back(HostTime([&] { stepper.Step([] {}); }, device, 60));
  }
  const double without_us = MedianOf(without);
  const double with_us = MedianOf(with);
  if (mpi.rank() == 0) {
    fmt::print(
        "{{\"workload\":\"mlp\",\"ranks\":{},\"device\":\"{}\",\"host_us\":{:.1f},"
        "\"host_us_without_reducer\":{:.1f},\"reducer_share\":{:.4f}}}\n",
        mpi.world_size(), device.str(), with_us, without_us, (with_us - without_us) / with_us);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const std::string workload = argc > 1 ? argv[1] : "";
  if (workload != "gpt2" && workload != "mlp") {
    fmt::print(stderr, "usage: mpirun -n N {} gpt2|mlp [VARIANT [BUCKET_MIB]]\n", argv[0]);
    return 2;
  }
  lockstep::FlightRecorder recorder;
  lockstep::MpiCommunicator mpi(recorder);
  const int64_t bucket_mib = argc > 3 ? std::atoi(argv[3]) : 25;
  lockstep::Run(workload, argc > 2 ? argv[2] : "", bucket_mib << 20, mpi, recorder);
  mpi.Finalize();
}
