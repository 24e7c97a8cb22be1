// For tests: checkpoint_cycle RUN_DIR RANKS FIRST LAST writes checkpoints of the steps FIRST to LAST, and keeps the
// newest two. It writes the parts of RANKS ranks one after the other. For each committed checkpoint it prints a line
// with the step on standard output.

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "ckpt/checkpoint.h"

namespace lockstep {
namespace {

constexpr size_t kKept = 2;

void Run(const std::string& run_dir, int ranks, int64_t first, int64_t last) {
  RemoveLeftovers(run_dir);
  for (int64_t step = first; step <= last; ++step) {
    std::vector<CheckpointWriter> writers;
    for (int rank = 0; rank < ranks; ++rank) {
      writers.emplace_back(CheckpointWriter::Options{
          .run_dir = run_dir, .step = step, .attempt = "a", .rank = rank, .ranks = ranks});
      const std::string content(10'000 + step, static_cast<char>('a' + rank));
      writers[rank].WriteFile(fmt::format("state-{}.safetensors", rank),
                              [&](const AppendBytes& append) {
                                const auto bytes = std::as_bytes(std::span(content));
                                append(bytes.first(bytes.size() / 3));
                                append(bytes.subspan(bytes.size() / 3));
                              });
      writers[rank].FinishPart();
    }
    if (!writers[0].AllPartsAreFinished()) throw BugError("parts are missing");
    checkpoint::Manifest facts;
    facts.set_config("seed: 1");
    writers[0].Commit(facts);
    const std::string line = fmt::format("{}\n", step);
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) throw BugError("no standard output");
    RemoveOthers(run_dir, {.newest = kKept});
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    lockstep::Run(argv[1], std::atoi(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
    return 0;
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
