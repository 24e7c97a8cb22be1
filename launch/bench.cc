#include "launch/bench.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/nearest.h"
#include "launch/mpirun.h"
#include "trainer/together.h"

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

// To `places` decimal places.
double Round(double value, int places) {
  const double scale = std::pow(10, places);
  return std::round(value * scale) / scale;
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
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
    fmt::print("{} of {}, {}\n", NameOf(op), options.dtype, MachineText(world));
    fmt::print("{:>12} {:>12} {:>12} {:>12} {:>8}\n", "bytes", "time us", "algbw GB/s",
               "busbw GB/s", "wrong");
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
      fmt::print("{}\n", line.dump());
    } else if (prints) {
      fmt::print("{:>12} {:>12.1f} {:>12.2f} {:>12.2f} {:>8}\n", timing.bytes, timing.time_us,
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

void BenchStep(const config::Config& config, const BenchOptions& bench, const Models& models,
               const World& world, const TrainOptions& options) {
  constexpr int kWarmup = 10;
  const StepTimes times = MeasureSteps(config, models, world, kWarmup, bench.steps, options);
  if (world.rank() != 0) return;
  const double step_ms = MedianOf(times.step_ms);
  const double all_ms = std::accumulate(times.step_ms.begin(), times.step_ms.end(), 0.0);
  const double wait_ms = std::accumulate(times.wait_ms.begin(), times.wait_ms.end(), 0.0);
  const Json line{
      {"ranks", world.size()},
      {"device", MachineText(world)},
      {"global_batch", config.global_batch()},
      {"step_ms", Round(step_ms, 4)},
      {"samples_per_s", Round(static_cast<double>(config.global_batch()) / step_ms * 1e3, 0)},
      {"communication_wait", Round(wait_ms / all_ms, 4)}};
  fmt::print("{}\n", line.dump());
}

int BenchScaling(int ranks, int64_t global_batch, const std::string& program,
                 const std::vector<std::string>& arguments, const BenchOptions& bench) {
  std::vector<int> counts;
  for (int count = 1; count < ranks; count *= 2) counts.push_back(count);
  counts.push_back(ranks);
  Json first;
  for (const int count : counts) {
    std::vector<std::string> words{"bench", "step"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.insert(words.end(), {"--steps", std::to_string(bench.steps)});
    if (bench.weak) {
      words.insert(words.end(), {"--set", fmt::format("global_batch={}", global_batch * count)});
    }
    std::string output;
    const int status = Supervise(MpirunCommand(count, program, words), &output);
    if (status != 0) return status;
    Json line = Json::parse(output);
    if (first.empty()) {
      first = line;
      if (!bench.json) {
        fmt::print("{}: {}\n", line["device"].get<std::string>(),
                   bench.weak ? "the same batch for each rank" : "the same batch for all together");
        fmt::print("{:>6} {:>12} {:>10} {:>12} {:>9} {:>11} {:>14}\n", "ranks", "global batch",
                   "step ms", "samples/s", "speed-up", "efficiency", "communication");
      }
    }
    const double speed_up =
        line["samples_per_s"].get<double>() / first["samples_per_s"].get<double>();
    line["speed_up"] = Round(speed_up, 3);
    line["efficiency"] = Round(speed_up / count, 3);
    if (bench.json) {
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{:>6} {:>12} {:>10.3f} {:>12.0f} {:>8.2f}x {:>10.1f}% {:>13.1f}%\n", count,
                 line["global_batch"].get<int64_t>(), line["step_ms"].get<double>(),
                 line["samples_per_s"].get<double>(), speed_up, 100 * speed_up / count,
                 100 * line["communication_wait"].get<double>());
    }
    std::fflush(stdout);
  }
  return static_cast<int>(ExitStatus::kDone);
}

}  // namespace lockstep
