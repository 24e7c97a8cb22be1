#include "launch/checkpoints.h"

#include <filesystem>
#include <functional>
#include <vector>

#include "base/error.h"
#include "ckpt/checkpoint.h"

namespace lockstep {
namespace {

// Prints what `line_of` says of each checkpoint, or its error. Throws Error where there were some.
void PrintEach(const std::string& run_dir,
               const std::function<std::string(const Checkpoint&)>& line_of) {
  const std::vector<Checkpoint> checkpoints = ListCheckpoints(run_dir);
  if (checkpoints.empty()) throw CheckpointError("{}: no run's folder with checkpoints", run_dir);
  size_t damaged = 0;
  for (const Checkpoint& checkpoint : checkpoints) {
    try {
      fmt::print("{}\n", line_of(checkpoint));
    } catch (const Error& error) {
      // A run that trains removes old ones.
      if (!std::filesystem::exists(checkpoint.path)) continue;
      ++damaged;
      fmt::print("{}\n", error.what());
    }
  }
  if (damaged > 0) {
    throw CheckpointError("{}: {} of {} checkpoints are damaged", run_dir, damaged,
                          checkpoints.size());
  }
}

}  // namespace

void PrintCheckpoints(const std::string& run_dir) {
  PrintEach(run_dir, [](const Checkpoint& checkpoint) {
    const checkpoint::Manifest manifest = ReadManifest(checkpoint);
    std::string line =
        fmt::format("step {}  {} bytes of {} rank{}", checkpoint.step, BytesOf(manifest),
                    manifest.ranks(), manifest.ranks() == 1 ? "" : "s");
    for (const checkpoint::Metric& metric : manifest.metric()) {
      line += fmt::format("  {} {:.4f}", metric.name(), metric.value());
    }
    return line;
  });
}

void VerifyCheckpoints(const std::string& run_dir) {
  PrintEach(run_dir, [](const Checkpoint& checkpoint) {
    VerifyCheckpoint(checkpoint, ReadManifest(checkpoint));
    return fmt::format("{}: whole", checkpoint.path);
  });
}

}  // namespace lockstep
