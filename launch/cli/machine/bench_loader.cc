// lockstep bench loader: measures the samples/s of a config's data loader on this machine, and prints how the loader's
// time is spent and what limits its speed.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/file_descriptor.h"
#include "base/round.h"
#include "base/say.h"
#include "comm/together.h"
#include "config/config.h"
#include "data/feed/loader.h"
#include "data/images/kept_bytes.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/cli/machine/bench.h"
#include "trainer/run/extensions.h"
#include "trainer/run/input.h"
#include "trainer/run/open_data.h"
#include "trainer/step/precision.h"
#include "trainer/step/preprocessing.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Returns the CPU time of this process, user and system, in seconds.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The values of a rank's clocks and time counters at one moment. Differences between two readings give the times of a
// measurement.
struct Reading {
  double wall_s;
  double cpu_s;
  ReadTimes images;
  LoaderTimes loader;

  Reading(const Dataset& folder, const Loader& loader)
      : wall_s(SecondsSinceBoot()),
        cpu_s(CpuSeconds()),
        images(folder.times()),
        loader(loader.times()) {}
};

// The length of a measurement. Without `most_s`, the warm-up reads the data set once, and the measurement reads it
// twice. With `most_s`, the warm-up reads the data set once but ends after `most_s` seconds at the latest, and the
// measurement takes `most_s` seconds.
struct Extent {
  std::optional<double> most_s;
  // If true, the files are read from the disk and not from the page cache. There is then no warm-up, and the
  // measurement reads the data set once, for at most `most_s` seconds.
  bool cold = false;
};

// Removes a file, or all files in a folder, from the page cache.
void Evict(const std::string& path) {
  namespace fs = std::filesystem;
  const auto opened = [](const fs::path& file) {
    return FileDescriptor(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  };
  const auto evict = [&](const fs::path& file) {
    const FileDescriptor descriptor = opened(file);
    if (descriptor.get() >= 0) posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
  };
  // Dirty pages would stay in the page cache, so syncfs() first writes them to the disk.
  if (const FileDescriptor top = opened(path); top.get() >= 0) syncfs(top.get());
  if (!fs::is_directory(path)) return evict(path);
  for (const auto& entry :
       fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied)) {
    if (entry.is_regular_file()) evict(entry.path());
  }
}

// Opens the training files of `config`. Throws Error (kUsage) if the files have fewer samples than a global batch.
TrainingData OpenFor(const config::Config& config, const Extensions& extensions,
                     const World& world) {
  TrainingData data = OpenTrainingData(config, extensions.datasets, world);
  if (data.train->size() < config.global_batch()) {
    throw UsageError("global_batch: {} samples where one batch of all ranks takes {}",
                     data.train->size(), config.global_batch());
  }
  return data;
}

// Times the loader of `config`, from reading the samples to the model's input on the device. Rank 0 prints how the time
// is spent. Every rank must call this function. Throws Error (kData, kUsage).
void Bench(config::Config config, const Extent& extent, bool json, const Extensions& extensions,
           const World& world) {
  config.mutable_data()->clear_validation();
  config.mutable_data()->set_last_batch(config::Data::DROP);  // all batches have the same size
  TrainingData data;
  Together(world.host, [&] {
    data = OpenFor(config, extensions, world);
    if (!extent.cold) return;
    for (const std::string& path : config.data().train()) Evict(path);
  });
  config = Resolved(config, data);
  const Sampler sampler(
      SamplerOptionsFor(config, config.accumulation(), data, world.rank(), world.size()));
  const Preprocessing preprocessing(config.data(), data.train->spec(), world.device,
                                    PrecisionOn(world.device, config.precision()));
  LoaderOptions options = LoaderOptionsFor(config.loader(), *data.train, world);
  options.augment = AugmentOptionsFor(config);
  const double start = SecondsSinceBoot();
  Input input(*data.train, preprocessing, sampler, options, world.device);
  int64_t samples = 0;
  const auto take = [&] {
    const DeviceBatch& batch = input.feed.Next();
    preprocessing(batch.input, batch.draws);
    samples += batch.input.size(0);
    input.feed.Prefetch();
  };
  const auto wait = [&] {
    if (world.device.is_cuda()) at::cuda::getCurrentCUDAStream().synchronize();
  };
  const int64_t batches = sampler.steps_per_epoch() * config.accumulation();
  // Reads `epochs` epochs, but stops after `extent.most_s` seconds. Returns whether all epochs were read.
  const auto run = [&](int64_t epochs) {
    const double end_s = SecondsSinceBoot() + extent.most_s.value_or(HUGE_VAL);
    for (int64_t i = 0; i < epochs * batches; ++i) {
      if (SecondsSinceBoot() > end_s) return false;
      take();
    }
    wait();
    return true;
  };
  take();
  const double first_batch_s = SecondsSinceBoot() - start;
  bool is_warm = false;
  double first_epoch_rate = 0;
  if (!extent.cold) {
    is_warm = run(1);
    first_epoch_rate = static_cast<double>(samples) / (SecondsSinceBoot() - start);
  }
  wait();
  samples = 0;
  const Reading before(*data.train, input.loader);
  constexpr int64_t kAnyNumber = 1 << 20;
  run(extent.cold ? 1 : extent.most_s ? kAnyNumber : 2);
  wait();
  const Reading after(*data.train, input.loader);

  const double wall = after.wall_s - before.wall_s;
  const LoaderTimes loads = after.loader - before.loader;
  const ReadTimes reads = after.images - before.images;
  // `working` is the total time, in seconds, of all threads that read samples: the loader's threads or, if the loader
  // has no threads, the rank's main thread.
  const double working = loads.available > 0 ? loads.available : wall;
  // The part of the reading time that no other counter covers is the time of the normalisation, if the config has one.
  const double normalizing =
      std::max(0.0, loads.reading - reads.files - reads.decoding - reads.resizing - reads.gpu);
  const double idle = std::max(0.0, working - loads.reading);
  // A counter gets the whole time of a read when that read ends, so that a read that began before the measurement is in
  // the sum of the phases but not in `working`. The shares are therefore fractions of the sum of the phases.
  const double all = reads.files + reads.decoding + reads.resizing + reads.gpu + normalizing + idle;

  const auto count = static_cast<double>(samples);
  const at::Tensor sums =
      at::tensor({count / wall, count / (after.cpu_s - before.cpu_s), first_epoch_rate,
                  is_warm ? 1.0 : 0.0, static_cast<double>(data.kept->used())},
                 at::kDouble);
  world.host.AllReduceSum(sums, world.host.MakeLabel("rates")).Wait();
  if (world.rank() != 0) return;
  const auto sum = [&](int64_t i) { return sums[i].item<double>(); };
  const double rate = sum(0);
  const int ranks = world.size();
  Json line{{"peer", "lockstep"},
            {"workers", input.loader.threads()},
            {"batch", config.global_batch() / ranks},
            {"ranks", ranks},
            {"device", world.device.is_cuda() ? "cuda" : "cpu"},
            {"samples_per_s", Round(rate, 1)},
            {"per_worker", Round(rate / ranks * wall / working, 1)},
            {"per_core", Round(sum(1) / ranks, 1)},
            {"first_batch_s", Round(first_batch_s, 6)},
            {"read_share", Round(reads.files / all, 3)},
            {"decode_share", Round(reads.decoding / all, 3)},
            {"resize_share", Round(reads.resizing / all, 3)},
            {"gpu_share", Round(reads.gpu / all, 3)},
            {"normalize_share", Round(normalizing / all, 3)},
            {"idle_share", Round(idle / all, 3)},
            {"waited_share", Round(loads.waiting / wall, 3)},
            {"limit", LimitOf(loads, reads)},
            {"samples", data.train->size()},
            {"kept_mib", Round(sum(4) / ranks / (1 << 20), 1)},
            // "warm" says whether each rank had read all of its samples before the measurement.
            {"warm", sum(3) == ranks}};
  if (!extent.cold) line["first_epoch_samples_per_s"] = Round(sum(2), 1);
  if (json) {
    Print("{}\n", line.dump());
    return;
  }
  const int threads = input.loader.threads();
  Print("{:.0f} samples/s: {} thread{} on each of {} rank{}, batches of {}\n", rate, threads,
        threads == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s", config.global_batch() / ranks);
  Print("{:.0f} for each core that was in use\n", line["per_core"].get<double>());
  Print(
      "threads: {:.0f}% reading files, {:.0f}% decoding, {:.0f}% resizing, {:.0f}% while the GPU "
      "does both, {:.0f}% normalising, {:.0f}% idle\n",
      100 * reads.files / all, 100 * reads.decoding / all, 100 * reads.resizing / all,
      100 * reads.gpu / all, 100 * normalizing / all, 100 * idle / all);
  Print("waiting for a batch: {:.0f}% of the time; the first came after {:.2f} s\n",
        100 * loads.waiting / wall, first_batch_s);
  if (!extent.cold) {
    Print("the first epoch, which also fills caches: {:.0f} samples/s\n", sum(2));
  }
  Print("limit: {}\n", line["limit"].get<std::string>());
}

// Returns the text of a config that trains on a folder of images and normalises them with the mean and standard
// deviation of ImageNet.
std::string ConfigOfImages(const std::string& folder) {
  config::Config config;
  config.set_precision(config::AUTO);
  config.set_global_batch(256);
  config::Data& data = *config.mutable_data();
  data.set_format(config::Data::IMAGES);
  data.add_train(std::filesystem::absolute(folder));
  for (const double mean : {0.485, 0.456, 0.406}) data.add_mean(mean);
  for (const double std : {0.229, 0.224, 0.225}) data.add_std(std);
  return PrintConfig(config);
}

class LoaderCommand final : public RankCommand {
 public:
  explicit LoaderCommand(CLI::App& app)
      : RankCommand(BenchGroup(app), "loader", "samples/s of a config's loader, and its limit") {
    config_.AddFile(options());
    options().Add("--images", images_,
                  "instead of a config: folder of images, of a folder for each class or of shards, "
                  "which are cut to 224 x 224 and normalised");
    options()
        .Add("--seconds", most_s_, "how long it measures, after a warm-up of as long at the most")
        .Between(0.1, 1e6);
    options().Add("--cold", cold_,
                  "read the files from the disk, and not from the system's memory, once");
    AddJson(options(), json_);
    config_.AddSet(options());
  }

 private:
  config::Config Load() const {
    if (config_.path.empty() == images_.empty()) {
      throw UsageError("bench loader takes either a config file or --images FOLDER");
    }
    if (images_.empty()) return config_.Load();
    if (!std::filesystem::is_directory(images_)) {
      throw UsageError("--images: {}: no such folder", images_);
    }
    return LoadConfigText("--images", ConfigOfImages(images_), config_.assignments);
  }

  void Check(StartedCommand& started) const override {
    started.config = config_.path;
    started.may_use_gpus = Load().device() != config::Config::CPU;
  }

  ExitStatus RunAsRank(Job& job, const Invocation& invocation) override {
    config::Config config;
    Together(job.host(), [&] { config = Load(); });
    const World world = Connect(job, config);
    Extent extent{.cold = cold_};
    if (most_s_ > 0) extent.most_s = most_s_;
    Bench(std::move(config), extent, json_, invocation.extensions, world);
    return ExitStatus::kDone;
  }

  ConfigOptions config_;
  std::string images_;
  double most_s_ = 0;  // seconds to measure; 0: no limit
  bool cold_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewBenchLoaderCommand(CLI::App& app) {
  return std::make_unique<LoaderCommand>(app);
}

}  // namespace lockstep
