#include "launch/cli/machine/bench.h"

#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>

namespace lockstep {

CLI::App& BenchGroup(CLI::App& app) { return Group(app, "bench", "measurements on this machine"); }

void AddJson(CommandOptions& options, bool& json) {
  options.Add("--json", json, "a line of JSON for each measurement");
}

std::string MachineText(const World& world) {
  if (!world.device.is_cuda())
    return fmt::format("{} rank{} on the CPU", world.size(), world.size() == 1 ? "" : "s");
  return fmt::format("{} x {}", world.size(),
                     at::cuda::getDeviceProperties(world.device.index())->name);
}

}  // namespace lockstep
