// lockstep estimate: estimates the memory that a config's training takes on a GPU, and the largest micro-batch that
// fits into that GPU's memory. The command does not need the GPU.
//
// what can fail -> what the caller sees -> the test that shows it (tests/estimate_test.py)
//   an unknown GPU, a size without a unit, more ranks than samples in a step -> Error (kUsage) -> test_wrong_input
//   a model whose memory cannot be predicted -> Error (kUsage)
//     -> test_a_model_that_may_read_values, test_an_operation_that_cannot_be_foretold
//   the model does not accept some sizes of samples -> "-" in the table of --table
//     -> test_sizes_that_a_model_does_not_take
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ceil_divide.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "base/say.h"
#include "comm/alone.h"
#include "launch/cli/command/commands.h"
#include "launch/cli/command/rank_command.h"
#include "launch/cli/command/table.h"
#include "launch/machine/known_gpus.h"
#include "trainer/run/extensions.h"
#include "trainer/run/foretell.h"
#include "trainer/run/open_data.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = 1 << 30;

// Converts a size such as "16GiB", "900MiB" or "16GB" to bytes. Throws Error (kUsage).
int64_t ParseBytes(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, end);
  const double bytes = unit == "GiB"   ? number * kGiB
                       : unit == "MiB" ? number * kMiB
                       : unit == "GB"  ? number * 1e9
                                       : 0;
  constexpr double kMost = 1e15;
  if (error != std::errc() || !(bytes >= kMiB) || bytes > kMost) {
    throw UsageError("--memory {}: give a size such as 16GiB or 900MiB", text);
  }
  return static_cast<int64_t>(bytes);
}

const KnownGpu& GpuOfName(const std::string& name) {
  if (const KnownGpu* gpu = FindGpu(name)) return *gpu;
  std::vector<std::string> names;
  for (const KnownGpu& gpu : KnownGpus()) names.emplace_back(gpu.name);
  throw UsageError("--gpu {}: not known{}: give its memory instead, as --memory 16GiB (known: {})",
                   name, DidYouMean(name, names), fmt::join(names, ", "));
}

// Returns a remark for the user if the memory that Lockstep takes was not measured on this GPU, or if the GPU is too
// old; otherwise an empty string.
std::string_view RemarkOn(const KnownGpu& gpu) {
  constexpr int kLeastCapability = 75;  // CUDA 13 needs capability 7.5 or higher
  if (10 * gpu.traits.major + gpu.traits.minor < kLeastCapability)
    return " (too old for this CUDA)";
  return gpu.is_measured ? "" : " (not measured there)";
}

// Returns the part of the GPU's memory, in bytes, that PyTorch's allocator can get.
int64_t CapacityOf(const KnownGpu& gpu) { return (gpu.memory_mib - kContext_mib) * kMiB; }

// Returns the config for training on a GPU with the traits `gpu`: FP16 replaces BF16 if the GPU does not support BF16.
config::Config On(const GpuTraits& gpu, config::Config config) {
  if (!gpu.HasBfloat16() && config.precision() == config::BF16) config.set_precision(config::FP16);
  return config;
}

// The samples of a config. Their shape comes from the config's fields or from its files.
struct Samples {
  SampleSpec spec;
  std::shared_ptr<const Dataset> files;  // the opened files; null: no files were opened
};

// Returns the samples of `config`. If `opens` is true, the files are opened even if the config describes their samples.
// If the files are opened, also sets the fields of `config` that follow from the files.
Samples SamplesOf(config::Config& config, bool opens, const Invocation& invocation) {
  const config::Data& data = config.data();
  // The number of categories of a column is known from the files or from the saved config of a run. If the config has
  // categorical columns and is no saved config, it therefore does not describe its samples.
  const bool has_categories = data.csv().category_size() > 0 && data.csv().column_size() == 0;
  const bool is_described = data.input_shape_size() > 0 && data.classes() > 0 && !has_categories;
  if (data.train_size() == 0 || (is_described && !opens)) {
    const SampleSpec spec = SpecOf(data);
    if (!spec.shape.empty() && spec.classes > 0) return {.spec = spec, .files = nullptr};
  }
  const std::unique_ptr<Communicator> alone = MakeAlone(at::kCPU);
  const World world{.device = at::kCPU, .communicator = *alone, .host = *alone};
  const TrainingData opened = OpenTrainingData(config, invocation.extensions.datasets, world);
  config = Resolved(config, opened);
  return {.spec = opened.train->spec(), .files = opened.train};
}

// Returns how many seconds one core takes to prepare a sample, on average over at most 256 samples.
double SecondsOfSample(const Dataset& files) {
  constexpr int64_t kMost = 256;
  constexpr double kLeast_s = 0.5;
  std::vector<std::byte> input(files.spec().bytes());
  std::vector<std::byte> target(files.spec().target_bytes());
  const double begin_s = SecondsSinceBoot();
  int64_t count = 0;
  while (count < std::min(kMost, files.size()) && SecondsSinceBoot() - begin_s < kLeast_s) {
    files.Read(count++ * 7919 % files.size(), /*epoch=*/0, input.data(), target.data());
  }
  return (SecondsSinceBoot() - begin_s) / static_cast<double>(count);
}

// Returns the memory that a step of the form `form` takes, even if no GPU has so much memory. Throws Error (kUsage).
MemoryReport Needed(Foreteller& foreteller, const StepForm& form) {
  constexpr int64_t kUnlimited = int64_t{1} << 50;
  if (auto report = foreteller.Memory(form, kUnlimited)) return *std::move(report);
  throw UsageError(
      "global_batch: a micro-batch of {} samples is larger than any memory: take fewer",
      form.micro_batch);
}

class EstimateCommand final : public LocalCommand {
 public:
  explicit EstimateCommand(CLI::App& app)
      : LocalCommand(
            app, "estimate",
            "the memory that a config takes on a GPU and what fits there, without the GPU") {
    config_.AddFile(options()).Required();
    options()
        .Add("--gpu", gpu_, "GPU: T4, V100, RTX 3080, RTX 3090, RTX 4090, A100, L4, H100, H200")
        .ShowDefault();
    options().Add("--memory", memory_,
                  "memory that the GPU's allocator may take, such as 16GiB, instead of the GPU's");
    options().Add("--ranks", ranks_, "ranks that train together").Within(1, 1 << 20).ShowDefault();
    options()
        .Add("--rate", rate_, "samples/s of a rank for which the loader's cores are told")
        .Between(0, 1e9);
    options().Add("--table", table_, "largest micro-batches by size of the samples and by GPU");
    options().Add("--json", json_, "a line of JSON for each measurement");
    config_.AddSet(options());
  }

 private:
  ExitStatus RunHere(const Invocation& invocation) override {
    const KnownGpu& gpu = GpuOfName(gpu_);
    const int64_t capacity = memory_.empty() ? CapacityOf(gpu) : ParseBytes(memory_);
    config::Config config = config_.Load();
    if (const int64_t most = config.global_batch() / config.accumulation(); ranks_ > most) {
      throw UsageError(
          "--ranks {}: each rank needs a sample in each micro-batch, and global_batch {} with "
          "accumulation {} is enough for {}: give fewer ranks, or a greater global_batch",
          ranks_, config.global_batch(), config.accumulation(), most);
    }
    const Samples samples = SamplesOf(config, /*opens=*/rate_ > 0, invocation);
    if (table_) {
      PrintTable(config, samples.spec, invocation.extensions.models);
    } else {
      Tell(On(gpu.traits, config), samples, gpu, capacity, invocation.extensions.models);
    }
    return ExitStatus::kDone;
  }

  void Tell(const config::Config& config, const Samples& samples, const KnownGpu& gpu,
            int64_t capacity, const Models& models) const {
    const auto foreteller = [&](const config::Config& of, int ranks) {
      return std::make_unique<Foreteller>(of, samples.spec, models, gpu.traits, ranks);
    };
    const StepForm form = StepFormOf(config, config.accumulation(), ranks_);
    const auto own = foreteller(config, ranks_);
    const MemoryReport report = Needed(*own, form);
    const bool fits = own->Memory(form, capacity).has_value();
    const int64_t largest = own->LargestMicroBatch(capacity);
    const int64_t of_rank = StepFormOf(config, /*accumulation=*/1, ranks_).micro_batch;
    const int64_t accumulation = largest > 0 ? CeilDivide(of_rank, largest) : 0;
    const auto peak_with = [&](const auto& change, int ranks) -> std::optional<int64_t> {
      config::Config changed = config;
      if (!change(changed)) return std::nullopt;
      return Needed(*foreteller(changed, ranks), StepFormOf(changed, changed.accumulation(), ranks))
          .peak_bytes;
    };
    const auto checkpointed = peak_with(
        [](config::Config& changed) {
          if (changed.model().activation_checkpointing()) return false;
          changed.mutable_model()->set_activation_checkpointing(true);
          return true;
        },
        ranks_);
    const auto sharded = peak_with(
        [&](config::Config& changed) {
          if (ranks_ == 1 || changed.optimizer().shard()) return false;
          changed.mutable_optimizer()->set_shard(true);
          return true;
        },
        ranks_);
    const int64_t loader_bytes = config.loader().slots() * form.micro_batch *
                                 (samples.spec.bytes() + samples.spec.target_bytes());
    const double sample_s = samples.files ? SecondsOfSample(*samples.files) : 0;
    if (json_) {
      Json line{{"model", config.model().name()},
                {"parameters", own->parameters()},
                {"gpu", memory_.empty() ? Json(gpu.name) : Json()},
                {"capacity_bytes", capacity},
                {"micro_batch", form.micro_batch},
                {"accumulation", form.accumulation},
                {"peak_bytes", report.peak_bytes},
                {"reserved_bytes", report.reserved_bytes},
                {"fits", fits},
                {"largest_micro_batch", largest},
                {"least_accumulation", accumulation},
                {"loader_bytes", loader_bytes}};
      for (const MemoryPart& part : report.owners) line["owners"][part.name] = part.bytes;
      for (const MemoryPart& part : report.blocks) line["blocks"][part.name] = part.bytes;
      if (checkpointed) line["with_activation_checkpointing_bytes"] = *checkpointed;
      if (sharded) line["with_shard_bytes"] = *sharded;
      if (sample_s > 0) line["sample_ms"] = 1e3 * sample_s;
      Print("{}\n", line.dump());
      return;
    }
    const std::string device =
        memory_.empty() ? fmt::format("{}{}", gpu.name, RemarkOn(gpu)) : "the allocator";
    Print("{}, {:.1f}M parameters, {}, {} x {} samples a step{}\n", config.model().name(),
          static_cast<double>(own->parameters()) / 1e6,
          config::Precision_Name(PrecisionOn(at::kMeta, config.precision())), form.accumulation,
          form.micro_batch, ranks_ > 1 ? fmt::format(" on each of {} ranks", ranks_) : "");
    std::vector<TableRow> rows;
    for (const MemoryPart& part : report.owners) {
      const bool has_blocks =
          part.name == NameOf(MemoryOwner::kActivations) && !report.blocks.empty();
      rows.push_back({"  " + part.name, BytesText(part.bytes),
                      has_blocks ? fmt::format("most in {}: {}", report.blocks[0].name,
                                               BytesText(report.blocks[0].bytes))
                                 : ""});
    }
    rows.push_back(
        {"  in all", BytesText(report.peak_bytes),
         fmt::format("for which the allocator takes {}", BytesText(report.reserved_bytes))});
    Print("{}", TableText(rows));
    Print("{}: {} may take {}\n", fits ? "fits" : "does not fit", device, BytesText(capacity));
    if (largest > 0) {
      Print("largest micro-batch: {}; a global batch of {} then needs accumulation {}\n", largest,
            config.global_batch(), accumulation);
    } else {
      Print("largest micro-batch: not even one sample fits\n");
    }
    if (checkpointed) {
      Print("model.activation_checkpointing: {} instead of {}\n", BytesText(*checkpointed),
            BytesText(report.peak_bytes));
    }
    if (sharded) {
      Print("optimizer.shard: {} instead of {}\n", BytesText(*sharded),
            BytesText(report.peak_bytes));
    }
    Print("loader: {} of host memory for {} slots\n", BytesText(loader_bytes),
          config.loader().slots());
    if (sample_s > 0 && rate_ > 0) {
      Print(
          "loader: {:.2f} ms of one core a sample, so {:.0f} samples/s need {:.1f} cores like this "
          "machine's\n",
          1e3 * sample_s, rate_, rate_ * sample_s);
    } else if (rate_ > 0) {
      Print("loader: these samples are not read from files\n");
    }
  }

  // Prints a table of the largest micro-batches that fit. The table has a row for each size of images or length of
  // texts, and a column for each known GPU.
  void PrintTable(const config::Config& config, const SampleSpec& spec,
                  const Models& models) const {
    const bool has_images = spec.shape.size() == 3;
    const bool has_tokens = spec.dtype == at::kLong && spec.shape.size() == 1;
    if (!has_images && !has_tokens) {
      throw UsageError("--table: is for images and tokens, not for samples of {} numbers",
                       spec.bytes() / static_cast<int64_t>(c10::elementSize(spec.dtype)));
    }
    const std::vector<int64_t> sizes =
        has_images ? std::vector<int64_t>{64, 96, 128, 160, 192, 224, 256, 320, 384, 512}
                   : std::vector<int64_t>{128, 256, 512, 1024, 2048, 4096};
    std::vector<TableRow> rows{{has_images ? "image" : "tokens"}};
    for (const KnownGpu& gpu : KnownGpus()) rows[0].emplace_back(gpu.name);
    std::optional<Error> refused;
    bool takes_some = false;
    for (const int64_t size : sizes) {
      SampleSpec sized = spec;
      if (has_images) sized.shape[1] = sized.shape[2] = size;
      if (has_tokens) sized.shape[0] = size;
      config::Config of = config;
      of.mutable_data()->mutable_input_shape()->Assign(sized.shape.begin(), sized.shape.end());
      TableRow& row = rows.emplace_back(TableRow{std::to_string(size)});
      for (const KnownGpu& gpu : KnownGpus()) {
        try {
          Foreteller foreteller(On(gpu.traits, of), sized, models, gpu.traits, ranks_);
          row.push_back(std::to_string(foreteller.LargestMicroBatch(CapacityOf(gpu))));
          takes_some = true;
        } catch (const Error& error) {
          row.emplace_back("-");  // the model does not accept samples of this size
          refused = error;
        }
      }
    }
    if (!takes_some) throw *refused;
    Print("{}", TableText(rows));
  }

  ConfigOptions config_;
  std::string gpu_ = "H100";
  std::string memory_;
  int ranks_ = 1;
  double rate_ = 0;
  bool table_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewEstimateCommand(CLI::App& app) {
  return std::make_unique<EstimateCommand>(app);
}

}  // namespace lockstep
