// lockstep bench step: measures the time of a config's training step and of its phases, and the share of the GPU's peak
// FLOP/s that the step reaches.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/round.h"
#include "base/say.h"
#include "base/small_letters.h"
#include "comm/together.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/cli/machine/bench.h"
#include "ops/convolution/convolution_planner.h"
#include "ops/generated/kernel_cache.h"
#include "ops/product/matrix_product.h"
#include "trainer/run/measure.h"
#include "trainer/run/memory_account.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Returns the `share` quantile of `values`, for example the median for a `share` of 0.5.
double PercentileOf(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<int64_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double InGibi(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

// Prints one line for each kernel plan in `reports`. All reports are about operations of the kind `kind`, such as
// "convolution". `library` is the library that offers the plans.
template <typename Reports>
void PrintPlans(const char* kind, const char* library, const Reports& reports) {
  for (const auto& [key, plan, source] : reports) {
    Print("{:>14}  {}: {:.1f} us, {}'s first {:.1f} us, {}\n", kind, ops::Description(key), plan.us,
          library, plan.first_us, ops::NameOf(source, library));
  }
}

// Times steps of `config` and prints the results on rank 0. `trace` is the path of a Chrome trace of ten more steps;
// empty: no trace is written. `kept` has the files that it must not replace. Every rank must call this function. Throws
// Error.
void BenchStep(const config::Config& config, int warmup, int steps, const std::string& trace,
               const KeptFiles& kept, bool json, const Extensions& extensions, const World& world,
               const TrainOptions& options) {
  const StepMeasurement measured =
      MeasureSteps(config, extensions, world, warmup, steps, trace, kept, options);
  // The output has the memory figures of the rank with the least memory left, because this rank would run out of memory
  // first.
  const DevicePeak memory =
      std::ranges::min(GatherValues(measured.memory, "what memory is left", world.host), {},
                       &DevicePeak::left_bytes);
  if (world.rank() != 0) return;
  const double step_ms = PercentileOf(measured.step_ms, 0.5);
  const double per_s = 1e3 / step_ms;
  const double all_ms = std::accumulate(measured.step_ms.begin(), measured.step_ms.end(), 0.0);
  const double samples_per_s = 1e3 * static_cast<double>(config.global_batch()) * steps / all_ms;
  // The backward pass takes twice the operations of the forward pass: for each matrix product, one product for the
  // gradient of the input and one for the gradient of the weights. A step therefore takes three times the operations of
  // the forward pass.
  const double flops_per_s = 3 * static_cast<double>(measured.forward_flops) * per_s;
  const double peak = measured.peak_flops;
  Json line{{"peer", "lockstep"},
            {"model", config.model().name()},
            {"device", MachineText(world)},
            {"ranks", world.size()},
            {"gpus", world.device.is_cuda() ? world.size() : 0},
            {"global_batch", config.global_batch()},
            {"batch", config.global_batch() / world.size() / measured.accumulation},
            {"accum", measured.accumulation},
            {"precision", InSmallLetters(config::Precision_Name(measured.precision))},
            {"graph", config.graph() && world.device.is_cuda() && measured.why_no_graph.empty()},
            {"params", measured.parameters},
            {"samples", measured.samples},
            {"samples_per_s", Round(samples_per_s, 4)},
            {"step_ms", Round(step_ms, 4)},
            {"p95_ms", Round(PercentileOf(measured.step_ms, 0.95), 4)},
            {"peak_gib", Round(InGibi(memory.peak_bytes), 2)},
            {"left_gib", Round(InGibi(memory.left_bytes), 2)},
            {"device_gib", Round(InGibi(memory.device_bytes), 2)},
            {"first_step_s", Round(measured.first_step_s, 2)},
            {"loss", Round(measured.loss, 4)},
            {"tflops", Round(flops_per_s * 1e-12, 3)}};
  if (peak > 0) line["of_peak"] = Round(flops_per_s / peak, 4);
  for (const Phase phase : kPhases) {
    line["phases_ms"][NameOf(phase)] = Round(measured.phase_ms[static_cast<size_t>(phase)], 4);
  }
  if (const ops::KernelReport kernels = ops::GeneratedKernels();
      kernels.compiled + kernels.kept > 0) {
    line["kernels_compiled"] = kernels.compiled;
    line["kernels_kept"] = kernels.kept;
    line["kernels_waited_s"] = Round(kernels.waited_s, 2);
  }
  if (!measured.why_no_graph.empty()) line["no_graph"] = measured.why_no_graph;
  if (json) {
    Print("{}\n", line.dump());
    return;
  }
  for (const auto& [key, value] : line.items()) {
    if (!value.is_object()) {
      Print("{:>14}  {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
      continue;
    }
    for (const auto& [phase, ms] : value.items()) {
      Print("{:>14}  {} ms\n", phase, ms.dump());
    }
  }
  PrintPlans("product", "cuBLASLt", ops::ProductPlans());
  PrintPlans("convolution", "cuDNN", ops::ConvolutionPlans());
}

// Prints a line of JSON with the field `failure`, which says why nothing was measured. The field's `kind` is
// "out_of_memory" if memory ran out, and "device" for an error with the status kBug, which other exceptions of
// libraries have. If memory ran out, the field also has the size of the micro-batch that did not fit (0: no step had
// begun). Prints nothing for other errors, because these do not depend on the size of the step.
void PrintFailure(const std::exception& exception, const World& world) {
  const Error error = ErrorOf(exception);
  if (error.on_every_rank() && world.rank() != 0) return;
  const auto* lacked = dynamic_cast<const OutOfMemoryError*>(&exception);
  Json failure;
  if (lacked != nullptr || IsOutOfMemory(exception)) {
    failure["kind"] = "out_of_memory";
    failure["micro_batch"] = lacked != nullptr ? lacked->micro_batch() : 0;
  } else if (error.status() == ExitStatus::kBug) {
    failure["kind"] = "device";
  } else {
    return;
  }
  failure["text"] = error.what();
  // A library's error message may have bytes that are not valid UTF-8.
  Print("{}\n", Json{{"failure", failure}}.dump(-1, ' ', false, Json::error_handler_t::replace));
}

class StepCommand final : public RankCommand {
 public:
  explicit StepCommand(CLI::App& app)
      : RankCommand(BenchGroup(app), "step",
                    "step time of a config on data that lie on the device") {
    options().Add("--trace", trace_, "file for a Chrome trace of ten more steps, kernel by kernel");
    config_.AddFile(options()).Required();
    options().Add("--warmup", warmup_, "steps before these").Within(1, 100'000).ShowDefault();
    options().Add("--steps", steps_, "steps to time").Within(1, 100'000).ShowDefault();
    AddJson(options(), json_);
    config_.AddSet(options());
  }

 private:
  void Check(StartedCommand& started) const override { config_.Check(started); }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    const config::Config config = config_.Load(job);
    const World world = Connect(job, config);
    TrainOptions options = TrainOptionsOf(job);
    const auto tell = [&](const std::exception& exception) {
      if (json_) PrintFailure(exception, world);
    };
    // If only this rank has an error, `leave` ends the process at once, so tell() must print the error before the call
    // of `leave`.
    options.leave = [&tell, leave = options.leave](const std::exception& exception) {
      tell(exception);
      leave(exception);
    };
    try {
      KeptFiles kept;
      kept.Add(config_.path, "the config");
      BenchStep(config, warmup_, steps_, trace_, kept, json_, invocation.extensions, world,
                options);
    } catch (const std::exception& exception) {
      tell(exception);
      throw;
    }
    return ExitStatus::kDone;
  }

  ConfigOptions config_;
  int warmup_ = 15;
  int steps_ = 50;
  std::string trace_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewBenchStepCommand(CLI::App& app) {
  return std::make_unique<StepCommand>(app);
}

}  // namespace lockstep
