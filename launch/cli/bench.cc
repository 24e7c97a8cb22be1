#include "launch/cli/bench.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/files/scratch_folder.h"
#include "base/nearest.h"
#include "base/round.h"
#include "base/say.h"
#include "comm/together.h"
#include "launch/job/supervisor.h"
#include "launch/machine/child_process.h"
#include "trainer/ops/convolution/convolution_planner.h"
#include "trainer/ops/product/matrix_product.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

at::ScalarType DtypeNamed(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kKnown{{"float32", at::kFloat},
                                                            {"float16", at::kHalf},
                                                            {"bfloat16", at::kBFloat16},
                                                            {"float64", at::kDouble}};
  const auto found = kKnown.find(name);
  if (found != kKnown.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, unused] : kKnown) names.push_back(known);
  throw UsageError("--dtype: no dtype \"{}\"{} (known: {})", name, DidYouMean(name, names),
                   fmt::join(names, ", "));
}

std::string MachineText(const World& world) {
  if (!world.device.is_cuda())
    return fmt::format("{} rank{} on the CPU", world.size(), world.size() == 1 ? "" : "s");
  return fmt::format("{} x {}", world.size(),
                     at::cuda::getDeviceProperties(world.device.index())->name);
}

// The value that `share` of `values` are below.
double PercentileOf(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<int64_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// What the data sheet of the GPU gives for dense matrix products, in operations per second; 0: unknown.
double PeakFlops(at::Device device, config::Precision precision) {
  struct Gpu {
    std::string_view name;
    double fp32, tf32, half;  // TFLOP/s
  };
  static constexpr Gpu kKnown[] = {
      {"H200", 67, 494.5, 989}, {"H100", 67, 494.5, 989},        {"A100", 19.5, 156, 312},
      {"L40S", 91.6, 183, 362}, {"L4", 30.3, 60, 121},           {"V100", 15.7, 15.7, 125},
      {"T4", 8.1, 8.1, 65},     {"RTX 4090", 82.6, 82.6, 165.2}, {"RTX 3090", 35.6, 35.6, 71}};
  if (!device.is_cuda()) return 0;
  const std::string_view name = at::cuda::getDeviceProperties(device.index())->name;
  for (const Gpu& gpu : kKnown) {
    const size_t at = name.find(gpu.name);
    if (at == std::string_view::npos) continue;
    // A whole word: an L40 is no L4.
    const size_t end = at + gpu.name.size();
    if ((end < name.size() && std::isalnum(static_cast<unsigned char>(name[end]))) ||
        (at > 0 && name[at - 1] != ' ')) {
      continue;
    }
    if (precision == config::FP32) return gpu.fp32 * 1e12;
    return (precision == config::TF32 ? gpu.tf32 : gpu.half) * 1e12;
  }
  return 0;
}

// reports: of one kind of operation, whose plans the library makes.
template <typename Reports>
void PrintPlans(const char* kind, const char* library, const Reports& reports) {
  for (const auto& [key, plan, source] : reports) {
    Print("{:>14}  {}: {:.1f} us, {}'s first {:.1f} us, {}\n", kind, ops::Description(key), plan.us,
          library, plan.first_us, ops::NameOf(source, library));
  }
}

}  // namespace

void BenchCollective(Op op, const BenchOptions& options, const World& world) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  CollectiveBench bench{.op = op};
  Together(world.host, [&] {
    bench.dtype = DtypeNamed(options.dtype);
    if (world.size() == 1) throw UsageError("one rank has nothing to exchange: add -n 2");
  });
  std::vector<int64_t> sizes{kMiB / 16, kMiB,      4 * kMiB,   16 * kMiB,
                             25 * kMiB, 64 * kMiB, 100 * kMiB, 256 * kMiB};
  if (world.device.is_cuda()) sizes.push_back(1024 * kMiB);
  if (options.bytes > 0) sizes = {options.bytes};
  const bool prints = world.rank() == 0;
  if (prints && !options.json) {
    Print("{} of {}, {}\n", NameOf(op), options.dtype, MachineText(world));
    Print("{:>12} {:>12} {:>12} {:>12} {:>8}\n", "bytes", "time us", "algbw GB/s", "busbw GB/s",
          "wrong");
  }
  for (const int64_t bytes : sizes) {
    const CollectiveTiming timing = Time(bench, bytes, world.communicator, world.device);
    if (prints && options.json) {
      const Json line{{"op", NameOf(op)},
                      {"bytes", timing.bytes},
                      {"dtype", options.dtype},
                      {"gpus", world.device.is_cuda() ? world.size() : 0},
                      {"ranks", world.size()},
                      {"time_us", Round(timing.time_us, 1)},
                      {"algbw_gbs", Round(timing.algbw_gbs, 2)},
                      {"busbw_gbs", Round(timing.busbw_gbs, 2)},
                      {"wrong", timing.wrong}};
      Print("{}\n", line.dump());
    } else if (prints) {
      Print("{:>12} {:>12.1f} {:>12.2f} {:>12.2f} {:>8}\n", timing.bytes, timing.time_us,
            timing.algbw_gbs, timing.busbw_gbs, timing.wrong);
    }
    std::fflush(stdout);
    Together(world.host, [&] {
      if (timing.wrong > 0) {
        throw BugError("{} of {} bytes: {} elements of the result are wrong", NameOf(op),
                       timing.bytes, timing.wrong);
      }
    });
  }
}

void BenchStep(const config::Config& config, const BenchOptions& bench,
               const Extensions& extensions, const World& world, const TrainOptions& options) {
  constexpr int kWarmup = 15;
  const StepMeasurement measured =
      MeasureSteps(config, extensions, world, kWarmup, bench.steps, bench.trace, options);
  if (world.rank() != 0) return;
  const double step_ms = PercentileOf(measured.step_ms, 0.5);
  const double per_s = 1e3 / step_ms;
  const double steps_ms = std::accumulate(measured.step_ms.begin(), measured.step_ms.end(), 0.0);
  const double samples_per_s =
      1e3 * static_cast<double>(config.global_batch()) * bench.steps / steps_ms;
  // Backward takes twice the forward's operations: one product each for the inputs and the weights.
  const double flops_per_s = 3 * static_cast<double>(measured.forward_flops) * per_s;
  const double peak = PeakFlops(world.device, measured.precision);
  Json line{{"peer", "lockstep"},
            {"model", config.model().name()},
            {"device", MachineText(world)},
            {"ranks", world.size()},
            {"gpus", world.device.is_cuda() ? world.size() : 0},
            {"global_batch", config.global_batch()},
            {"batch", config.global_batch() / world.size() / measured.accumulation},
            {"accum", measured.accumulation},
            {"precision", Lower(config::Precision_Name(measured.precision))},
            {"graph", config.graph() && world.device.is_cuda() && measured.why_no_graph.empty()},
            {"params", measured.parameters},
            {"samples_per_s", Round(samples_per_s, 1)},
            {"step_ms", Round(step_ms, 4)},
            {"p95_ms", Round(PercentileOf(measured.step_ms, 0.95), 4)},
            {"peak_gib", Round(static_cast<double>(measured.peak_bytes) / (int64_t{1} << 30), 2)},
            {"first_step_s", Round(measured.first_step_s, 2)},
            {"loss", Round(measured.loss, 4)},
            {"tflops", Round(flops_per_s * 1e-12, 3)}};
  if (peak > 0) line["of_peak"] = Round(flops_per_s / peak, 4);
  for (const Phase phase : kPhases) {
    line["phases_ms"][NameOf(phase)] = Round(measured.phase_ms[static_cast<size_t>(phase)], 4);
  }
  if (!measured.why_no_graph.empty()) line["no_graph"] = measured.why_no_graph;
  if (bench.json) {
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

int BenchScaling(int ranks, const Machines& machines, int64_t global_batch,
                 const std::string& program, const std::vector<std::string>& arguments,
                 const BenchOptions& bench) {
  std::vector<int> counts;
  for (int count = 1; count < ranks; count *= 2) counts.push_back(count);
  counts.push_back(ranks);
  RequireMpirun();
  std::optional<ScratchFolder> scratch;
  if (machines.one()) KeepMpirunsFilesIn(scratch.emplace().path());
  Json first;
  for (const int count : counts) {
    std::vector<std::string> words{"bench", "step"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), {"--json", "--steps", std::to_string(bench.steps)});
    if (bench.weak) {
      words.insert(words.end(), {"--set", fmt::format("global_batch={}", global_batch * count)});
    }
    std::string output;
    const ChildProcess::End end =
        RunAndRead(MpirunCommand(count, machines, program, words, {}), output);
    if (end.signal != 0) return static_cast<int>(ExitStatus::kPeer);
    if (end.code != 0) return JobStatus(end.code);
    Json line = Json::parse(output, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) {
      throw PeerError("mpirun ended with status 0, and the ranks have measured nothing");
    }
    if (first.empty()) {
      first = line;
      if (!bench.json) {
        Print("{}: {}\n", line["device"].get<std::string>(),
              bench.weak ? "the same batch for each rank" : "the same batch for all together");
        Print("{:>6} {:>12} {:>10} {:>12} {:>9} {:>11} {:>14}\n", "ranks", "global batch",
              "step ms", "samples/s", "speed-up", "efficiency", "exchange");
      }
    }
    const double speed_up =
        line["samples_per_s"].get<double>() / first["samples_per_s"].get<double>();
    line["speed_up"] = Round(speed_up, 3);
    line["efficiency"] = Round(speed_up / count, 3);
    line["exchange_share"] =
        Round(line["phases_ms"]["exchange"].get<double>() / line["step_ms"].get<double>(), 4);
    if (bench.json) {
      Print("{}\n", line.dump());
    } else {
      Print("{:>6} {:>12} {:>10.3f} {:>12.0f} {:>8.2f}x {:>10.1f}% {:>13.1f}%\n", count,
            line["global_batch"].get<int64_t>(), line["step_ms"].get<double>(),
            line["samples_per_s"].get<double>(), speed_up, 100 * speed_up / count,
            100 * line["exchange_share"].get<double>());
    }
    std::fflush(stdout);
  }
  return static_cast<int>(ExitStatus::kDone);
}

}  // namespace lockstep
