// Measures the images a second of the first and the second epoch, for each ImageCache:
//   bazel run -c opt //data/feed:image_cache_bench -- FOLDER THREADS
//
// The loader makes batches of 64 random crops of 224 x 224 pixels. images_per_s: the number of images divided by the
// time of the epoch, with the files in the page cache; per_cpu_s: the number of images divided by the CPU time that the
// process used in the epoch, which other processes hardly change; kept_mib: the size of the cache after the epoch. The
// benchmark checks that a hash of every 61st byte of the samples is the same with OFF and ENCODED.
//
// Measured values of per_cpu_s in epoch 1 and epoch 2, on an Intel Xeon with 2 threads and 2,000 files of about 500 x
// 375 pixels and 62 KiB:
//   OFF      1,029 and 1,141
//   ENCODED  1,063 and 1,191; 121 MiB are kept: the cache saves reads from a disk or a server, but no CPU time
//   DECODED    681 and 5,981; 1,074 MiB are kept: 0.54 MiB an image

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "data/feed/loader.h"
#include "data/images/image_dataset.h"

namespace lockstep {
namespace {

constexpr int64_t kBudget = int64_t{8} << 30;

struct Mode {
  const char* name;
  ImageCache cache;
};
constexpr std::array<Mode, 3> kModes{{{"OFF", ImageCache::kOff},
                                      {"ENCODED", ImageCache::kEncoded},
                                      {"DECODED", ImageCache::kDecoded}}};

// Returns the CPU time of this process, in seconds.
double CpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// Prints the rates of two epochs, and returns a hash of every 61st byte of the samples of both epochs.
uint64_t Measure(const Mode& mode, const std::string& folder, int threads) {
  const auto budget = std::make_shared<MemoryBudget>(kBudget);
  const auto images =
      OpenImages({.source = {.files = {folder}}, .cache = mode.cache, .budget = budget});
  const Sampler sampler({.samples = images->size(), .global_batch = 64});
  Loader loader(*images, sampler, {.threads = threads});
  uint64_t sum = 0;
  for (int epoch = 1; epoch <= 2; ++epoch) {
    const double begin = SecondsSinceBoot();
    const double cpu_begin = CpuSeconds();
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      const HostBatch batch = loader.Next();
      const auto* bytes = batch.input.const_data_ptr<uint8_t>();
      for (int64_t i = 0; i < batch.input.numel(); i += 61) sum = 31 * sum + bytes[i];
      loader.Release();
    }
    const double seconds = SecondsSinceBoot() - begin;
    const double cpu_seconds = CpuSeconds() - cpu_begin;
    const auto count = static_cast<double>(images->size());
    fmt::print(
        "{{\"cache\": \"{}\", \"epoch\": {}, \"threads\": {}, \"images\": {}, \"images_per_s\": "
        "{:.0f}, "
        "\"per_cpu_s\": {:.0f}, "
        "\"kept_mib\": {:.0f}, \"cores\": {}}}\n",
        mode.name, epoch, threads, images->size(), count / seconds, count / cpu_seconds,
        static_cast<double>(budget->used()) / (1 << 20), sysconf(_SC_NPROCESSORS_ONLN));
    std::fflush(stdout);
  }
  return sum;
}

int Run(int argc, char** argv) {
  if (argc != 3) throw UsageError("image_cache_bench FOLDER THREADS");
  std::array<uint64_t, kModes.size()> sums{};
  for (size_t i = 0; i < kModes.size(); ++i) {
    sums[i] = Measure(kModes[i], argv[1], std::atoi(argv[2]));
  }
  if (sums[0] != sums[1]) throw BugError("other bytes with ENCODED than with OFF");
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::Run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
