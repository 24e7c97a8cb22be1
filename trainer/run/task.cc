#include "trainer/run/task.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/files/open_file.h"
#include "base/files/safetensors.h"
#include "base/say.h"
#include "data/arrays/cifar10.h"
#include "data/arrays/mnist.h"
#include "data/arrays/npy.h"
#include "data/dataset/skip_bad.h"
#include "data/dataset/synthetic.h"
#include "data/images/gpu_decoder.h"
#include "data/images/image_dataset.h"
#include "data/tables/csv.h"
#include "data/tokens/tokens.h"
#include "trainer/config/config.h"
#include "trainer/models/batch_norm.h"

namespace lockstep {
namespace {

constexpr int64_t kGpt2Vocabulary = 50257;

std::vector<std::string> ListOf(const google::protobuf::RepeatedPtrField<std::string>& files) {
  return {files.begin(), files.end()};
}

Task TaskOf(const config::Data& config) {
  if (HoldsTokens(config)) return Task::kLanguage;
  switch (config.task()) {
    case config::Data::CLASSIFICATION:
      return Task::kClassification;
    case config::Data::MULTI_LABEL:
      return Task::kMultiLabel;
    case config::Data::REGRESSION:
      return Task::kRegression;
  }
  throw BugError("data.task {}", static_cast<int>(config.task()));
}

ImageCache CacheOf(const config::Images& images) {
  switch (images.cache()) {
    case config::Images::OFF:
      return ImageCache::kOff;
    case config::Images::ENCODED:
      return ImageCache::kEncoded;
    case config::Images::DECODED:
      return ImageCache::kDecoded;
  }
  throw BugError("data.images.cache {}", static_cast<int>(images.cache()));
}

std::shared_ptr<const Dataset> OpenImages(const config::Config& config,
                                          const std::vector<std::string>& files,
                                          const SampleSpec& expected, bool label_optional,
                                          const std::shared_ptr<MemoryBudget>& budget,
                                          const World& world) {
  const config::Images& images = config.data().images();
  const std::optional<at::Device> gpu = DecodingGpu(images, world);
  const auto dataset = lockstep::OpenImages({.source = {.files = files,
                                                        .classes = expected.class_names,
                                                        .class_count = expected.classes,
                                                        .label_optional = label_optional},
                                             .size = images.size(),
                                             .crop = {.min_area = images.min_area(),
                                                      .max_area = images.max_area(),
                                                      .max_stretch = images.max_stretch()},
                                             .mirror = images.mirror(),
                                             .exif_orientation = images.exif_orientation(),
                                             .center = images.center(),
                                             .seed = config.seed(),
                                             .gpu = gpu,
                                             .cache = CacheOf(images),
                                             .budget = budget});
  const int64_t classes = dataset->spec().classes;
  if (expected.classes > 0 && expected.classes != classes) {
    throw DataError("{}: {} classes where data.classes says {}", files[0], classes,
                    expected.classes);
  }
  return dataset;
}

CsvOptions CsvOptionsFor(const config::Csv& csv, const std::vector<std::string>& files,
                         const SampleSpec& expected, bool label_optional) {
  CsvOptions options{.files = files,
                     .delimiter = csv.delimiter()[0],
                     .header = csv.header(),
                     .labels = ListOf(csv.label()),
                     .label_column = csv.label_column(),
                     .label_columns = csv.label_columns(),
                     .ignore = ListOf(csv.ignore()),
                     .category = ListOf(csv.category()),
                     .mean_if_missing = csv.missing() == config::Csv::MEAN,
                     .standardize = csv.standardize(),
                     .scale = static_cast<float>(csv.scale()),
                     .task = expected.task,
                     .label_names = csv.label_names(),
                     .class_names = expected.class_names,
                     .classes = expected.classes,
                     .features = expected.shape.empty() ? 0 : expected.shape[0],
                     .label_optional = label_optional};
  for (const config::Csv::Column& column : csv.column()) {
    options.columns.push_back({.name = column.name(),
                               .mean = column.mean(),
                               .std = column.has_std() ? column.std() : 1,
                               .categories = ListOf(column.category())});
  }
  return options;
}

// Writes what the training files held to `csv`, for CsvOptionsFor.
void Keep(const CsvTable& table, config::Csv& csv) {
  csv.clear_column();
  for (const CsvColumn& column : table.columns) {
    config::Csv::Column& kept = *csv.add_column();
    if (!column.name.empty()) kept.set_name(column.name);
    kept.mutable_category()->Assign(column.categories.begin(), column.categories.end());
    const bool measured = csv.standardize() || csv.missing() == config::Csv::MEAN;
    if (!measured || !column.categories.empty()) continue;
    kept.set_mean(column.mean);
    kept.set_std(column.std);
  }
  const std::vector<std::string>& classes = table.dataset->spec().class_names;
  csv.mutable_classes()->Assign(classes.begin(), classes.end());
  if (table.labels.empty()) return;
  csv.mutable_label()->Assign(table.labels.begin(), table.labels.end());
  csv.set_label_column(config::Csv().label_column());
  csv.set_label_columns(config::Csv().label_columns());
}

// Opens the training files and writes what they held to the config.
std::shared_ptr<const Dataset> OpenTrainingTable(config::Config& config,
                                                 const SampleSpec& expected) {
  config::Data& data = *config.mutable_data();
  CsvOptions options =
      CsvOptionsFor(data.csv(), ListOf(data.train()), expected, /*label_optional=*/false);
  if (data.validation_fraction() > 0) {
    options.training_rows = [&](int64_t rows) {
      return SplitBySeed(rows, data.validation_fraction(), config.seed()).train;
    };
  }
  const CsvTable table = ReadCsv(options);
  Keep(table, *data.mutable_csv());
  return table.dataset;
}

// Of a format whose inputs and targets are two files, the targets'; empty: there is none.
std::string SecondFile(const config::Data& data, const std::vector<std::string>& files,
                       bool optional) {
  if (files.size() == 2) return files[1];
  if (files.size() == 1 && optional) return "";
  throw UsageError("{}; not {}", TwoFilesText(data), files.size());
}

// `expected`: what is known of the samples; no shape and no classes: what the files hold. `budget`: of
// data.images.cache; null: nothing is kept.
std::shared_ptr<const Dataset> Open(const config::Config& config,
                                    const std::vector<std::string>& files,
                                    const SampleSpec& expected, bool label_optional,
                                    const std::shared_ptr<MemoryBudget>& budget,
                                    const Datasets& datasets, const World& world) {
  const config::Data& data = config.data();
  switch (data.format()) {
    case config::Data::CSV:
      return ReadCsv(CsvOptionsFor(data.csv(), files, expected, label_optional)).dataset;
    case config::Data::MNIST:
      return ReadMnist({.images = files[0],
                        .labels = SecondFile(data, files, label_optional),
                        .classes = expected.classes});
    case config::Data::NPY:
      return MapNpy({.inputs = files[0],
                     .targets = SecondFile(data, files, label_optional),
                     .task = expected.task,
                     .classes = expected.classes,
                     .pixels = HoldsPixels(data)});
    case config::Data::CIFAR10:
      return ReadCifar10({.files = files});
    case config::Data::IMAGES:
      return OpenImages(config, files, expected, label_optional, budget, world);
    case config::Data::TOKENS:
      return MapTokens({.files = files,
                        .length = data.tokens().length(),
                        .classes = expected.classes > 0 ? expected.classes : kGpt2Vocabulary});
    case config::Data::SYNTHETIC:
      return MakeSynthetic({.spec = expected, .samples = data.synthetic().samples()});
    case config::Data::OWN:
      return datasets.Open(data.own(), files, expected, label_optional);
  }
  throw BugError("data.format {}", static_cast<int>(data.format()));
}

// `dataset` as data.bad_samples wants it. For each part of the samples of its own: what stands for a bad
// sample is one of the same part.
std::shared_ptr<const Dataset> WithoutBad(const config::Config& config,
                                          std::shared_ptr<const Dataset> dataset) {
  const config::BadSamples& bad = config.data().bad_samples();
  if (bad.policy() == config::BadSamples::STOP) return dataset;
  return std::make_shared<SkipBad>(std::move(dataset), bad.limit(), config.seed());
}

// The samples as they are evaluated.
std::shared_ptr<const Dataset> AsEvaluated(const std::shared_ptr<const Dataset>& dataset) {
  std::shared_ptr<const Dataset> plain = dataset->Plain();
  return plain ? plain : dataset;
}

std::string ShapeText(const SampleSpec& spec) {
  return fmt::format("[{}]", fmt::join(spec.shape, ", "));
}

// What OpenFiles() says, with a budget for Open(). Adds to `remarks` instead of warning.
std::shared_ptr<const Dataset> OpenLike(const config::Config& config,
                                        const std::vector<std::string>& files,
                                        const SampleSpec& spec, bool label_optional,
                                        const std::shared_ptr<MemoryBudget>& budget,
                                        const Datasets& datasets, const World& world,
                                        std::vector<std::string>& remarks) {
  const auto opened = Open(config, files, spec, label_optional, budget, datasets, world);
  std::ranges::copy(opened->Remarks(), std::back_inserter(remarks));
  const auto dataset = AsEvaluated(opened);
  if (dataset->spec().shape != spec.shape) {
    throw DataError("{}: samples of shape {} where the model was made for {}",
                    files.empty() ? config.data().own().name() : files.front(),
                    ShapeText(dataset->spec()), ShapeText(spec));
  }
  // Nothing can stand for a sample whose prediction was asked for.
  return label_optional ? dataset : WithoutBad(config, dataset);
}

// Copies the tensors of config.init_from into the model; with config.replace_head all but its last
// layer's. Throws Error (kUsage, kCheckpoint).
void LoadWeights(const config::Config& config, const Model& model) {
  const std::vector<std::string> heads = model.HeadPrefixes();
  const auto of_head = [&](const std::string& name) {
    return std::any_of(heads.begin(), heads.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  std::map<std::string, at::Tensor> found = ReadSafetensors(config.init_from(), kGivenByUser);
  model.AdaptWeights(found);
  std::vector<NamedTensor> wanted = model.State();
  if (config.replace_head()) {
    if (heads.empty()) {
      throw UsageError("replace_head: the model \"{}\" has no last layer that could be replaced",
                       config.model().name());
    }
    std::erase_if(found, [&](const auto& entry) { return of_head(entry.first); });
    std::erase_if(wanted, [&](const NamedTensor& tensor) { return of_head(tensor.name); });
  }
  CopyByName(config.init_from(), found, wanted, [&](const std::string& name) {
    return of_head(name) ? "; to start that layer at random set replace_head: true" : "";
  });
}

// The loss of a model with one is NaN from the first step on.
void RefuseNan(const std::string& file, const Model& model) {
  for (const NamedTensor& named : model.State()) {
    if (!named.tensor.is_floating_point() || !named.tensor.isnan().any().item<bool>()) continue;
    throw UsageError("{}: tensor {} holds NaN: no training mends that", file, named.name);
  }
}

}  // namespace

SampleSpec SpecOf(const config::Data& config) {
  SampleSpec spec{.shape = {config.input_shape().begin(), config.input_shape().end()},
                  .classes = config.classes(),
                  .task = TaskOf(config)};
  if (HoldsTokens(config)) spec.dtype = at::kLong;
  if (HoldsPixels(config)) spec.dtype = at::kByte;
  if (config.format() == config::Data::IMAGES) {
    spec.channels_last = true;
    spec.class_names = ListOf(config.images().classes());
  }
  if (config.format() == config::Data::CSV) spec.class_names = ListOf(config.csv().classes());
  return spec;
}

std::optional<at::Device> DecodingGpu(const config::Images& config, const World& world) {
  // So many decode what ResNet-50 takes on the fastest GPU.
  constexpr int kManyCores = 4;
  // GPUs below that train with no more images a second than two cores decode.
  constexpr int kManyMultiprocessors = 100;
  switch (config.decode()) {
    case config::Images::CPU:
      return std::nullopt;
    case config::Images::GPU:
      if (const std::string why = GpuDecoder::Unavailable(world.device); !why.empty()) {
        throw UsageError("data.images.decode: GPU: {}", why);
      }
      return world.device;
    case config::Images::AUTO:
      if (config.cache() == config::Images::DECODED || world.cores >= kManyCores ||
          !GpuDecoder::Unavailable(world.device).empty() ||
          at::cuda::getDeviceProperties(world.device.index())->multiProcessorCount <
              kManyMultiprocessors) {
        return std::nullopt;
      }
      return world.device;
  }
  throw BugError("data.images.decode {}", static_cast<int>(config.decode()));
}

TrainingData OpenTrainingData(const config::Config& given, const Datasets& datasets,
                              const World& world) {
  config::Config config = given;  // and what the training files hold
  const config::Data& data = config.data();
  SampleSpec expected = SpecOf(data);
  // What training files hold is compared with data.input_shape once they are open.
  if (data.format() != config::Data::SYNTHETIC) expected.shape.clear();
  const auto budget = std::make_shared<MemoryBudget>(data.images().cache_mib() << 20);
  const std::shared_ptr<const Dataset> all =
      data.format() == config::Data::CSV ? OpenTrainingTable(config, expected)
                                         : Open(config, ListOf(data.train()), expected,
                                                /*label_optional=*/false, budget, datasets, world);
  TrainingData opened{.csv = data.csv(), .remarks = all->Remarks()};
  if (all->spec().task == Task::kClassification && all->spec().classes == 1) {
    opened.remarks.push_back(
        fmt::format("{}: all samples are of one class: there is nothing to learn",
                    data.train_size() > 0 ? data.train(0) : "data"));
  }
  if (data.validation_fraction() > 0) {
    Split split = SplitBySeed(all->size(), data.validation_fraction(), config.seed());
    const auto part = [&](const std::shared_ptr<const Dataset>& whole, std::vector<int64_t> rows) {
      return WithoutBad(config, std::make_shared<Subset>(whole, std::move(rows)));
    };
    opened.train = part(all, std::move(split.train));
    opened.validation = part(AsEvaluated(all), std::move(split.validation));
    return opened;
  }
  opened.train = WithoutBad(config, all);
  if (data.validation_size() > 0) {
    opened.validation = OpenLike(config, ListOf(data.validation()), all->spec(),
                                 /*label_optional=*/false, budget, datasets, world, opened.remarks);
  }
  return opened;
}

config::Config Resolved(config::Config config, const TrainingData& training) {
  const SampleSpec& spec = training.train->spec();
  config::Data& data = *config.mutable_data();
  if (data.input_shape_size() > 0 && SpecOf(data).shape != spec.shape) {
    throw DataError("{}: samples of shape [{}] where data.input_shape says [{}]",
                    data.train_size() > 0 ? data.train(0) : data.own().name(),
                    fmt::join(spec.shape, ", "), fmt::join(data.input_shape(), ", "));
  }
  data.mutable_input_shape()->Assign(spec.shape.begin(), spec.shape.end());
  data.set_classes(spec.classes);
  if (data.format() == config::Data::CSV) *data.mutable_csv() = training.csv;
  if (data.format() == config::Data::IMAGES) {
    data.mutable_images()->mutable_classes()->Assign(spec.class_names.begin(),
                                                     spec.class_names.end());
  }
  return config;
}

std::shared_ptr<const Dataset> OpenFiles(const config::Config& config,
                                         const std::vector<std::string>& files,
                                         const SampleSpec& spec, bool label_optional,
                                         const Datasets& datasets, const World& world) {
  std::vector<std::string> remarks;
  auto dataset =
      OpenLike(config, files, spec, label_optional, /*budget=*/nullptr, datasets, world, remarks);
  if (world.rank() == 0) std::ranges::for_each(remarks, Warn);
  return dataset;
}

Input::Input(const Dataset& dataset, const Preprocessing& preprocessing, const Sampler& sampler,
             const LoaderOptions& options, at::Device device)
    : in_loader(options.augment.Any() ? nullptr : preprocessing.InLoader(dataset)),
      loader(in_loader ? *in_loader : dataset, sampler, options),
      feed(loader, (in_loader ? *in_loader : dataset).spec(), sampler.max_micro_batch(), device) {}

std::shared_ptr<Model> MakeModel(const config::Config& config, const SampleSpec& spec,
                                 const Models& models, const World& world) {
  torch::manual_seed(config.seed());
  std::shared_ptr<Model> model = models.Make(
      {.input_shape = spec.shape,
       .classes = spec.classes,
       .task = spec.task,
       .config = config.model(),
       .sync_batch_norm = config.ddp().sync_batch_norm() ? &world.communicator : nullptr});
  const auto modules = model->modules();
  const bool has_batch_norm = std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return dynamic_cast<const BatchNorm*>(module.get()) != nullptr;
  });
  if (config.ddp().sync_batch_norm() && !has_batch_norm) {
    throw UsageError(
        "ddp.sync_batch_norm: the model \"{}\" has no lockstep::BatchNorm "
        "(trainer/models/batch_norm.h)",
        config.model().name());
  }
  if (!config.init_from().empty()) {
    LoadWeights(config, *model);
    RefuseNan(config.init_from(), *model);
  } else if (const std::string& file = config.model().torchscript().file(); !file.empty()) {
    RefuseNan(file, *model);
  }
  model->to(world.device);
  return model;
}

SamplerOptions SamplerOptionsFor(const config::Config& config, int64_t accumulation,
                                 int64_t samples, int rank, int ranks) {
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

LoaderOptions LoaderOptionsFor(const config::Loader& config, const Dataset& dataset,
                               const World& world) {
  // More than decoding for the fastest GPU takes.
  constexpr int kMaxCores = 64;
  // Threads that wait for a slow disk take none of a core's time.
  constexpr int kMostPerCore = 4;
  LoaderOptions options{
      .threads = config.threads(), .slots = config.slots(), .pinned = world.device.is_cuda()};
  if (config.threads() < 0) {
    const int cores = std::min(world.cores, kMaxCores);
    options.threads = world.device.is_cuda() ? std::max(1, cores - 1) : cores - 1;
    options.most_threads = kMostPerCore * cores;
    if (dataset.samples_at_once() > 1) {
      // One waits while the other prepares; what they wait with costs memory.
      constexpr int kThreads = 2, kMostThreads = 8;
      options.threads = kThreads;
      options.most_threads = kMostThreads;
    }
  }
  return options;
}

}  // namespace lockstep
