#include "trainer/run/input.h"

#include <algorithm>

namespace lockstep {
namespace {

SamplerOptions OptionsFor(const config::Config& config, int64_t accumulation, int64_t samples,
                          int rank, int ranks) {
  return {.samples = samples,
          .global_batch = config.global_batch(),
          .accumulation = static_cast<int>(accumulation),
          .rank = rank,
          .ranks = ranks,
          .seed = config.seed(),
          .shuffle = config.data().shuffle(),
          .last_batch = config.data().last_batch() == config::Data::DROP ? LastBatch::kDrop
                                                                         : LastBatch::kKeep};
}

}  // namespace

Input::Input(const Dataset& dataset, const Preprocessing& preprocessing, const Sampler& sampler,
             const LoaderOptions& options, at::Device device)
    : in_loader(options.augment.Any() ? nullptr : preprocessing.InLoader(dataset)),
      loader(in_loader ? *in_loader : dataset, sampler, options),
      feed(loader, (in_loader ? *in_loader : dataset).spec(), sampler.max_micro_batch(), device) {}

SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 const TrainingData& data, int rank, int ranks) {
  SamplerOptions options = OptionsFor(config, accumulation, data.train->size(), rank, ranks);
  options.draws = data.draws;
  return options;
}

int64_t StepsOfRun(const config::Config& config, int64_t samples) {
  const Sampler sampler(OptionsFor(config, /*accumulation=*/1, samples, /*rank=*/0, /*ranks=*/1));
  const int64_t steps = config.epochs() * sampler.steps_per_epoch();
  return config.max_steps() > 0 ? std::min(steps, config.max_steps()) : steps;
}

LoaderOptions LoaderOptionsFor(const config::Loader& config, const Dataset& dataset,
                               const World& world) {
  // The most cores that count for the number of loader threads. More are not needed, even to decode images for the
  // fastest GPU.
  constexpr int kMaxCores = 64;
  // Tuning may raise the number of threads to four per core, because threads that wait for a slow disk use no core.
  constexpr int kMostPerCore = 4;
  LoaderOptions options{
      .threads = config.threads(), .slots = config.slots(), .pinned = world.device.is_cuda()};
  if (config.threads() < 0) {
    const int cores = std::min(world.cores, kMaxCores);
    options.threads = world.device.is_cuda() ? std::max(1, cores - 1) : cores - 1;
    options.most_threads = kMostPerCore * cores;
    if (dataset.samples_at_once() > 1) {
      // With two threads, one can prepare samples while the other waits for the device. Each further thread needs
      // memory for its samples.
      constexpr int kThreads = 2, kMostThreads = 8;
      options.threads = kThreads;
      options.most_threads = kMostThreads;
    }
  }
  return options;
}

}  // namespace lockstep
