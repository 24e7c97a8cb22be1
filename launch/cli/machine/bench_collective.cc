// lockstep bench allreduce, reduce-scatter and all-gather: measures the time and the bandwidth of a collective, as
// nccl-tests defines them.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/round.h"
#include "base/say.h"
#include "comm/collective_bench.h"
#include "comm/together.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/dtype.h"
#include "launch/cli/command/rank_command.h"
#include "launch/cli/machine/bench.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Times a collective and prints the results on rank 0. `only_bytes` is the only size to time, in bytes; if it is 0,
// eight or nine sizes are timed. Every rank must call this function. Throws Error: kUsage for an unknown dtype or a
// single rank, kBug if a result of the collective is wrong.
void BenchCollective(Op op, const std::string& dtype, int64_t only_bytes, bool json,
                     const World& world) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  CollectiveBench bench{.op = op};
  Together(world.host, [&] {
    bench.dtype = DtypeNamed(dtype);
    if (world.size() == 1) throw UsageError("one rank has nothing to exchange: add -n 2");
  });
  std::vector<int64_t> sizes{kMiB / 16, kMiB,      4 * kMiB,   16 * kMiB,
                             25 * kMiB, 64 * kMiB, 100 * kMiB, 256 * kMiB};
  if (world.device.is_cuda()) sizes.push_back(1024 * kMiB);
  if (only_bytes > 0) sizes = {only_bytes};
  const bool prints = world.rank() == 0;
  if (prints && !json) {
    Print("{} of {}, {}\n", NameOf(op), dtype, MachineText(world));
    Print("{:>12} {:>12} {:>12} {:>12} {:>8}\n", "bytes", "time us", "algbw GB/s", "busbw GB/s",
          "wrong");
  }
  for (const int64_t bytes : sizes) {
    const CollectiveTiming timing = Time(bench, bytes, world.communicator, world.device);
    if (prints && json) {
      const Json line{{"op", NameOf(op)},
                      {"bytes", timing.bytes},
                      {"dtype", dtype},
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

class CollectiveCommand final : public RankCommand {
 public:
  CollectiveCommand(CLI::App& app, const std::string& name, Op op)
      : RankCommand(BenchGroup(app), name, fmt::format("time and bandwidth: {}", NameOf(op))),
        op_(op) {
    options()
        .Add("--bytes", bytes_, "one size instead of several")
        .Within(int64_t{1}, int64_t{1} << 40);
    options().Add("--dtype", dtype_, "float32, float16, bfloat16 or float64").ShowDefault();
    AddDevice(options(), device_);
    AddJson(options(), json_);
  }

 private:
  ExitStatus RunAsRank(Job& job, const Invocation&) override {
    BenchCollective(op_, dtype_, bytes_, json_, Connect(job, device_));
    return ExitStatus::kDone;
  }

  Op op_;
  std::string dtype_ = "float32";
  int64_t bytes_ = 0;  // the only size to time; 0: several sizes are timed
  config::Config::Device device_ = config::Config::AUTO;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewBenchAllReduceCommand(CLI::App& app) {
  return std::make_unique<CollectiveCommand>(app, "allreduce", Op::kAllReduce);
}

std::unique_ptr<Command> NewBenchReduceScatterCommand(CLI::App& app) {
  return std::make_unique<CollectiveCommand>(app, "reduce-scatter", Op::kReduceScatter);
}

std::unique_ptr<Command> NewBenchAllGatherCommand(CLI::App& app) {
  return std::make_unique<CollectiveCommand>(app, "all-gather", Op::kAllGather);
}

}  // namespace lockstep
