// lockstep bench loader: images/s of the loader on this machine, where the time goes, and what limits it.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/round.h"
#include "base/say.h"
#include "comm/together.h"
#include "data/feed/loader.h"
#include "data/images/image_dataset.h"
#include "launch/cli/bench.h"
#include "launch/cli/commands.h"
#include "launch/cli/rank_command.h"
#include "trainer/formats/decoding_gpu.h"
#include "trainer/run/input.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Seconds that this process has used cores for.
double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Where a rank's time stands.
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

struct LoaderBench {
  std::string images;   // folder of images, or of shards
  int64_t batch = 256;  // on each rank
  int threads = -1;     // -1: chosen from the cores
  config::Images::Decode decode = config::Images::AUTO;
  bool json = false;
};

// Times the loader on an image folder, random crops of 224 x 224 to normalised numbers on the device, and prints on
// rank 0 where the time goes. Every rank must call it. Throws Error (kData, kUsage).
void Bench(const LoaderBench& bench, const World& world) {
  constexpr int kEpochs = 2;  // after one that warms up
  std::shared_ptr<const Dataset> folder;
  config::Loader config;
  config.set_threads(bench.threads);
  config::Images images;
  images.set_decode(bench.decode);
  const int64_t global_batch = bench.batch * world.size();
  Together(world.host, [&] {
    const std::optional<at::Device> gpu = DecodingGpu(images, world.device, world.cores);
    folder = OpenImages({.source = {.files = {bench.images}}, .gpu = gpu});
    if (folder->size() < global_batch) {
      throw UsageError("--batch: {} images where one batch of each rank takes {}", folder->size(),
                       global_batch);
    }
  });
  const Sampler sampler({.samples = folder->size(),
                         .global_batch = global_batch,
                         .rank = world.rank(),
                         .ranks = world.size(),
                         .last_batch = LastBatch::kDrop});
  config::Data data;
  for (const double mean : {0.485, 0.456, 0.406}) data.add_mean(mean);
  for (const double std : {0.229, 0.224, 0.225}) data.add_std(std);
  const Preprocessing preprocessing(data, folder->spec(), world.device,
                                    world.device.is_cuda() ? config::BF16 : config::FP32);
  Input input(*folder, preprocessing, sampler, LoaderOptionsFor(config, *folder, world),
              world.device);
  double first_batch_s = 0;
  const double start = SecondsSinceBoot();
  const auto run_epoch = [&] {
    for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
      preprocessing(input.feed.Next().input);
      if (first_batch_s == 0) first_batch_s = SecondsSinceBoot() - start;
      input.feed.Prefetch();
    }
    if (world.device.is_cuda()) at::cuda::getCurrentCUDAStream().synchronize();
  };
  run_epoch();
  const double first_epoch_s = SecondsSinceBoot() - start;
  const Reading before(*folder, input.loader);
  for (int epoch = 0; epoch < kEpochs; ++epoch) run_epoch();
  const Reading after(*folder, input.loader);

  const double wall = after.wall_s - before.wall_s;
  const auto samples = static_cast<double>(kEpochs * sampler.steps_per_epoch() * bench.batch);
  const LoaderTimes loads = after.loader - before.loader;
  const ReadTimes reads = after.images - before.images;
  // Without threads the rank's own reads the images.
  const double all = loads.available > 0 ? loads.available : wall;
  // What threads do with a sample beyond these: where they normalise, that.
  const double normalizing =
      std::max(0.0, loads.reading - reads.files - reads.decoding - reads.resizing - reads.gpu);
  const double idle = std::max(0.0, all - loads.reading);

  const at::Tensor sums = at::tensor({samples / wall, samples / (after.cpu_s - before.cpu_s)});
  world.host.AllReduceSum(sums, world.host.MakeLabel("rates")).Wait();
  if (world.rank() != 0) return;
  const double rate = sums[0].item<double>();
  const Json line{
      {"peer", "lockstep"},
      {"workers", input.loader.threads()},
      {"batch", bench.batch},
      {"ranks", world.size()},
      {"device", world.device.is_cuda() ? "cuda" : "cpu"},
      {"images_per_s", Round(rate, 1)},
      {"per_worker", Round(rate / world.size() * wall / all, 1)},
      {"per_core", Round(sums[1].item<double>() / world.size(), 1)},
      {"first_batch_s", Round(first_batch_s, 6)},
      {"first_epoch_images_per_s", Round(samples / kEpochs * world.size() / first_epoch_s, 1)},
      {"read_share", Round(reads.files / all, 3)},
      {"decode_share", Round(reads.decoding / all, 3)},
      {"resize_share", Round(reads.resizing / all, 3)},
      {"gpu_share", Round(reads.gpu / all, 3)},
      {"normalize_share", Round(normalizing / all, 3)},
      {"idle_share", Round(idle / all, 3)},
      {"waited_share", Round(loads.waiting / wall, 3)},
      {"limit", LimitOf(loads, reads)}};
  if (bench.json) {
    Print("{}\n", line.dump());
    return;
  }
  const int threads = input.loader.threads();
  Print("{:.0f} images/s: {} thread{} on each of {} rank{}, batches of {}\n", rate, threads,
        threads == 1 ? "" : "s", world.size(), world.size() == 1 ? "" : "s", bench.batch);
  Print("{:.0f} for each core that was in use\n", line["per_core"].get<double>());
  Print(
      "threads: {:.0f}% reading files, {:.0f}% decoding, {:.0f}% resizing, {:.0f}% while the GPU "
      "does both, {:.0f}% normalising, {:.0f}% idle\n",
      100 * reads.files / all, 100 * reads.decoding / all, 100 * reads.resizing / all,
      100 * reads.gpu / all, 100 * normalizing / all, 100 * idle / all);
  Print("waiting for a batch: {:.0f}% of the time; the first came after {:.2f} s\n",
        100 * loads.waiting / wall, first_batch_s);
  Print("the first epoch, which also fills caches: {:.0f} images/s\n",
        line["first_epoch_images_per_s"].get<double>());
  Print("limit: {}\n", line["limit"].get<std::string>());
}

class LoaderCommand final : public RankCommand {
 public:
  explicit LoaderCommand(CLI::App& app)
      : RankCommand(BenchGroup(app), "loader", "images/s of the loader, and its limit") {
    options()
        .Add("--images", bench_.images,
             "folder of images: of a folder for each class, or of shards")
        .Required();
    options()
        .Add("--batch", bench_.batch, "images of a batch on each rank")
        .Within(1, 1 << 20)
        .ShowDefault();
    options()
        .Add("--threads", bench_.threads, "of each rank; -1: chosen from its cores")
        .Within(-1, 256)
        .ShowDefault();
    options().AddChoice("--decode", bench_.decode, "images on the cpu or the gpu, or auto",
                        {{"auto", config::Images::AUTO},
                         {"cpu", config::Images::CPU},
                         {"gpu", config::Images::GPU}},
                        "auto");
    AddDevice(options(), device_);
    AddJson(options(), bench_.json);
  }

 private:
  ExitStatus RunAsRank(Job& job, const Invocation&) override {
    Bench(bench_, Connect(job, device_));
    return ExitStatus::kDone;
  }

  LoaderBench bench_;
  config::Config::Device device_ = config::Config::AUTO;
};

}  // namespace

std::unique_ptr<Command> NewBenchLoaderCommand(CLI::App& app) {
  return std::make_unique<LoaderCommand>(app);
}

}  // namespace lockstep
