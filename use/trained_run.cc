#include "use/trained_run.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/files/kept_files.h"
#include "base/files/safetensors.h"
#include "base/say.h"
#include "ckpt/checkpoint.h"
#include "ckpt/saver.h"
#include "ckpt/weights.h"
#include "comm/reduce/reducer.h"
#include "comm/together.h"
#include "config/kept_inputs.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/extensions.h"
#include "trainer/run/input.h"
#include "trainer/run/made_of.h"
#include "trainer/run/make_model.h"
#include "trainer/run/open_data.h"
#include "trainer/step/precision.h"
#include "use/outputs.h"
#include "use/predict.h"

namespace lockstep {
namespace {

// A run's model with its weights, and the samples to use it on.
struct LoadedRun {
  std::string weights;  // on rank 0: the checkpoint that was loaded; empty: the final weights
  std::shared_ptr<const Dataset> dataset;
  std::optional<SampleRecords> records{};  // of samples that the run held back; otherwise nothing
  std::vector<std::string> remarks{};      // lines that tell how the files were read
  std::shared_ptr<Model> model;
  std::optional<Preprocessing> preprocessing;
  config::Precision precision = config::FP32;
};

// Loads the model of `run`. open(loaded) sets the samples, which stay null if there are none, their records and the
// remarks. Every rank must call LoadRun(). Throws Error on every rank.
template <typename Open>
LoadedRun LoadRun(const NamedRun& run, const Extensions& extensions, const World& world,
                  const Open& open) {
  LoadedRun loaded;
  Together(world.host, [&] {
    open(loaded);
    if (!loaded.dataset) {
      throw UsageError("{}: the run held no samples back: name some with --input", run.name);
    }
    config::Config config = run.config;
    config.clear_init_from();
    config.set_replace_head(false);
    loaded.precision = PrecisionOn(world.device, config.precision());
    SetUpNumerics(loaded.precision, config.deterministic());
    loaded.model = MakeModel(config, SpecOf(config.data()), extensions.models, world);
    if (world.rank() == 0) {
      const Weights weights = ReadWeights(run.weights.empty() ? run.name : run.weights);
      RequireSameGraph(config, *loaded.model, weights.graph, weights.path,
                       ": a run uses the graph that it was trained with");
      CopyByName(weights.path, weights.tensors, loaded.model->State());
      const bool are_final = weights.path == RunWeightsPath(ParseRunPoint(run.name).run_dir);
      if (!are_final) loaded.weights = weights.Name();
    }
    loaded.preprocessing.emplace(config.data(), loaded.dataset->spec(), world.device,
                                 loaded.precision);
  });
  BroadcastFromRankZero(loaded.model->State(), world.communicator);
  return loaded;
}

// On rank 0, adds a remark that begins with what_differs(checkpoint, manifest), unless this is empty. The arguments are
// the newest checkpoint of `run` and its manifest. A run whose checkpoint cannot be read does not say what it was made
// of.
template <typename WhatDiffers>
void RemarkChanges(const NamedRun& run, const World& world, LoadedRun& loaded,
                   const WhatDiffers& what_differs) {
  if (world.rank() != 0) return;
  try {
    const Checkpoint newest = FindCheckpoint(ParseRunPoint(run.name).run_dir);
    const std::string what = what_differs(newest, ReadManifest(newest));
    if (!what.empty()) loaded.remarks.push_back(what + " since the run was trained");
  } catch (const Error&) {
  }
}

// Opens the samples that the training with `config`, the config of `run`, held back. On rank 0, adds a remark if these
// samples are not those with which the newest checkpoint was validated.
void OpenHeldBack(const NamedRun& run, const config::Config& config, const Extensions& extensions,
                  const World& world, LoadedRun& loaded) {
  const TrainingData data = OpenTrainingData(config, extensions.datasets, world);
  loaded.dataset = data.validation;
  if (!loaded.dataset) return;
  loaded.records.emplace(*data.train, data.validation.get());
  RemarkChanges(run, world, loaded, [&](const Checkpoint&, const checkpoint::Manifest& manifest) {
    const auto* was = SetNamed(kValidationSet, manifest.data_set());
    if (was == nullptr) return std::string();
    return WhatDiffers(*was, DataSetOf(kValidationSet, config.data(), *loaded.dataset));
  });
}

// Call this after the samples of `loaded` were read, on every rank. On rank 0, adds a remark if `run` had read another
// content in any of those that it held back.
void CompareWhatWasRead(const NamedRun& run, const World& world, LoadedRun& loaded) {
  if (!loaded.records) return;
  loaded.records->Merged(world.host);
  RemarkChanges(run, world, loaded,
                [&](const Checkpoint& checkpoint, const checkpoint::Manifest& manifest) {
                  const std::string samples = SamplesFile(checkpoint, manifest);
                  return samples.empty() ? "" : loaded.records->WhatDiffers(samples);
                });
}

LoadedRun LoadForPrediction(const NamedRun& run, const PredictionRequest& request,
                            const Extensions& extensions, const World& world) {
  return LoadRun(run, extensions, world, [&](LoadedRun& loaded) {
    if (!request.held_back) {
      loaded.dataset =
          OpenFiles(run.config, request.files, SpecOf(run.config.data()),
                    /*label_optional=*/true, extensions.datasets, world, loaded.remarks);
      return;
    }
    // An unreadable sample must not be replaced by another one, because the user asked for the prediction of this
    // sample: reading it fails, whatever data.bad_samples says.
    config::Config config = run.config;
    config.mutable_data()->clear_bad_samples();
    OpenHeldBack(run, config, extensions, world, loaded);
  });
}

// Returns a Predictor with the model of `loaded`. loaded.dataset may be the data set of another run, if both runs read
// files in the same way.
Predictor PredictorOf(const LoadedRun& loaded, const config::Data& config) {
  Predictor predictor{.model = *loaded.model,
                      .preprocessing = *loaded.preprocessing,
                      .spec = loaded.dataset->spec(),
                      .precision = loaded.precision};
  if (config.standardize_targets()) {
    predictor.spec.target_mean = {config.target_mean().begin(), config.target_mean().end()};
    predictor.spec.target_std = {config.target_std().begin(), config.target_std().end()};
  }
  return predictor;
}

// Returns the mean of the predictions of `predictors` for the samples that `first` holds.
at::Tensor PredictWith(std::span<const Predictor> predictors, const LoadedRun& first,
                       const config::Config& config, const World& world, bool best_only) {
  return Predict(predictors, *first.dataset, EvaluationBatch(config, config.accumulation()),
                 LoaderOptionsFor(config.loader(), *first.dataset, world), world, best_only);
}

at::Tensor PredictWith(const LoadedRun& loaded, const config::Config& config, const World& world,
                       bool best_only) {
  const Predictor alone = PredictorOf(loaded, config.data());
  return PredictWith({&alone, 1}, loaded, config, world, best_only);
}

PredictedSamples SamplesOf(const Dataset& dataset) {
  PredictedSamples samples{.spec = dataset.spec()};
  const bool has_files = dataset.size() > 0 && !dataset.FileOf(0).empty();
  for (int64_t i = 0; i < dataset.size(); ++i) {
    samples.numbers.push_back(dataset.NumberInFiles(i));
    if (has_files) samples.files.push_back(dataset.FileOf(i));
  }
  return samples;
}

// The samples that the folds held back, and their predictions. Both are in the order of the files.
struct HeldBackPredictions {
  PredictedSamples samples;
  at::Tensor values;
};

HeldBackPredictions InOrderOfFiles(const std::vector<HeldBackPredictions>& folds) {
  struct Place {
    int64_t number, fold, row, row_of_all;
  };
  std::vector<Place> places;
  std::vector<at::Tensor> parts;
  for (const HeldBackPredictions& fold : folds) {
    for (int64_t row = 0; row < fold.samples.size(); ++row) {
      places.push_back({fold.samples.numbers[row], std::ssize(parts), row, std::ssize(places)});
    }
    parts.push_back(fold.values);
  }
  std::ranges::sort(places, {}, &Place::number);
  HeldBackPredictions all{.samples{.spec = folds.front().samples.spec}, .values{}};
  std::vector<int64_t> order;
  for (const Place& place : places) {
    const PredictedSamples& samples = folds[place.fold].samples;
    all.samples.numbers.push_back(place.number);
    all.samples.folds.push_back(place.fold);
    if (!samples.files.empty()) all.samples.files.push_back(samples.files[place.row]);
    order.push_back(place.row_of_all);
  }
  all.values = at::cat(parts).index_select(0, at::tensor(order, at::kLong));
  return all;
}

// Checks that all runs have the same classes, and that their predictions of one sample can be averaged. Throws Error
// (kUsage).
void RequireAlike(const std::vector<NamedRun>& runs, const PredictionRequest& request) {
  const bool have_masks = runs.front().config.data().task() == config::Data::SEGMENTATION;
  if (runs.size() > 1 && have_masks && !request.held_back) {
    throw UsageError("the masks of several folds have no mean: name one fold, {}",
                     runs.front().name);
  }
  const SampleSpec first = SpecOf(runs.front().config.data());
  for (const NamedRun& run : runs) {
    const SampleSpec spec = SpecOf(run.config.data());
    if (spec.classes == first.classes && spec.class_names == first.class_names) continue;
    throw UsageError("{}: its classes are not those of {}: train all folds again, with --fresh",
                     run.name, runs.front().name);
  }
}

// Returns the files that contain the samples that a run held back.
std::vector<std::string> FilesHeldBack(const config::Data& data) {
  const auto& files = data.validation_size() > 0 ? data.validation() : data.train();
  return {files.begin(), files.end()};
}

// The settings of a run that decide how it reads given files and how it computes predictions.
struct WayToRead {
  config::Data data;
  int64_t batch = 0;
  config::Precision precision = config::FP32;
  bool deterministic = false;
};

WayToRead WayOf(const config::Config& config, const World& world) {
  WayToRead way{.data = config.data(),
                .batch = EvaluationBatch(config, config.accumulation()),
                .precision = PrecisionOn(world.device, config.precision()),
                .deterministic = config.deterministic()};
  config::Data& data = way.data;
  // These fields only decide which samples are trained on, and how.
  data.clear_train();
  data.clear_validation();
  data.clear_validation_fraction();
  data.clear_folds();
  data.clear_sampling();
  data.clear_shuffle();
  data.clear_last_batch();
  data.clear_augment();
  data.clear_bad_samples();
  if (data.has_images()) {
    config::Images& images = *data.mutable_images();
    images.clear_min_area();
    images.clear_max_area();
    images.clear_max_stretch();
    images.clear_mirror();
    images.clear_cache_mib();
  }
  // Each model converts its own predictions to the targets' unit.
  data.clear_target_mean();
  data.clear_target_std();
  // On a GPU each model normalises the pixels itself; on a CPU the loader threads do it, for all models in the same
  // way.
  if (world.device.is_cuda()) {
    data.clear_mean();
    data.clear_std();
  }
  return way;
}

// Returns whether all runs read given files in the same way. Folds of a table read them in different ways if each fold
// scales the columns by statistics of its own training rows.
bool ReadAlike(const std::vector<NamedRun>& runs, const World& world) {
  const WayToRead first = WayOf(runs.front().config, world);
  return std::ranges::all_of(runs, [&](const NamedRun& run) {
    const WayToRead way = WayOf(run.config, world);
    return google::protobuf::util::MessageDifferencer::Equivalent(way.data, first.data) &&
           way.batch == first.batch && way.precision == first.precision &&
           way.deterministic == first.deterministic;
  });
}

// Returns the mean of the predictions of all runs, on every rank. If the runs read files in the same way, all models
// are in memory together and each sample is read once; otherwise the runs are loaded one after the other, and
// LoadedRun::remarks of each run after the first are appended to `remarks`.
at::Tensor MeanOfRuns(const std::vector<NamedRun>& runs, const LoadedRun& first,
                      const PredictionRequest& request, const Extensions& extensions,
                      const World& world, std::vector<std::vector<std::string>>& remarks) {
  const config::Config& config = runs.front().config;
  const bool best_only = WritesBestOnly(request, config.data());
  if (runs.size() == 1) return PredictWith(first, config, world, best_only);
  if (ReadAlike(runs, world)) {
    std::vector<LoadedRun> others;
    std::vector<Predictor> predictors{PredictorOf(first, config.data())};
    others.reserve(runs.size());
    for (size_t i = 1; i < runs.size(); ++i) {
      others.push_back(LoadRun(runs[i], extensions, world,
                               [&](LoadedRun& loaded) { loaded.dataset = first.dataset; }));
      predictors.push_back(PredictorOf(others.back(), runs[i].config.data()));
    }
    return PredictWith(predictors, first, config, world, best_only);
  }
  at::Tensor sum = PredictWith(first, config, world, /*best_only=*/false);
  for (size_t i = 1; i < runs.size(); ++i) {
    const LoadedRun loaded = LoadForPrediction(runs[i], request, extensions, world);
    remarks.push_back(loaded.remarks);
    sum += PredictWith(loaded, runs[i].config, world, /*best_only=*/false);
  }
  sum /= static_cast<double>(runs.size());
  return best_only ? BestOf(sum) : sum;
}

}  // namespace

RunEvaluation EvaluateRun(const NamedRun& run, const std::vector<std::string>& files,
                          const Extensions& extensions, const World& world) {
  const config::Config& config = run.config;
  LoadedRun loaded = LoadRun(run, extensions, world, [&](LoadedRun& opened) {
    if (files.empty()) {
      OpenHeldBack(run, config, extensions, world, opened);
    } else {
      opened.dataset = OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/false,
                                 extensions.datasets, world, opened.remarks);
    }
  });
  std::vector<Metric> metrics =
      Evaluate(*loaded.model, *loaded.preprocessing, *loaded.dataset,
               EvaluationBatch(config, config.accumulation()),
               LoaderOptionsFor(config.loader(), *loaded.dataset, world), loaded.precision, world);
  CompareWhatWasRead(run, world, loaded);
  return {.weights = loaded.weights,
          .metrics = std::move(metrics),
          .samples = loaded.dataset->size(),
          .bad_samples = loaded.dataset->TakeReports(),
          .remarks = loaded.remarks};
}

RunPredictions PredictRuns(const std::vector<NamedRun>& runs, PredictionRequest request,
                           const Extensions& extensions, const World& world) {
  const config::Data& data = runs.front().config.data();
  std::optional<PredictionFile> file;  // set only on rank 0
  Together(world.host, [&] {
    CheckRequest(request, data);
    RequireAlike(runs, request);
    if (world.rank() != 0) return;
    PredictionRequest of_file = request;
    if (request.held_back) of_file.files = FilesHeldBack(data);
    KeptFiles kept;
    kept.Add("/dev/stdin", "standard input");
    for (const NamedRun& run : runs) {
      kept.AddRun(ParseRunPoint(run.name).run_dir);
      kept.Add(run.weights, "the weights");
      KeepFilesOf(run.config, "the run " + run.name, kept);
    }
    file.emplace(std::move(of_file), runs.front().config, std::move(kept));
  });
  const auto prepare = [&](PredictedSamples samples) {
    Together(world.host, [&] {
      if (file) file->Prepare(std::move(samples));
    });
  };
  LoadedRun first = LoadForPrediction(runs.front(), request, extensions, world);
  PredictedSamples samples = SamplesOf(*first.dataset);
  RunPredictions done{
      .weights = runs.size() == 1 ? first.weights : fmt::format("{} folds", runs.size()),
      .samples = samples.size()};
  prepare(samples);
  at::Tensor values;
  if (request.held_back && runs.size() > 1) {
    const bool best_only = WritesBestOnly(request, data);
    std::vector<HeldBackPredictions> folds;
    folds.push_back(
        {std::move(samples), PredictWith(first, runs.front().config, world, best_only)});
    for (size_t i = 1; i < runs.size(); ++i) {
      LoadedRun loaded = LoadForPrediction(runs[i], request, extensions, world);
      folds.push_back(
          {SamplesOf(*loaded.dataset), PredictWith(loaded, runs[i].config, world, best_only)});
      CompareWhatWasRead(runs[i], world, loaded);
      done.remarks.push_back(std::move(loaded.remarks));
    }
    HeldBackPredictions all = InOrderOfFiles(folds);
    done.samples = all.samples.size();
    prepare(std::move(all.samples));
    values = all.values;
  } else {
    values = MeanOfRuns(runs, first, request, extensions, world, done.remarks);
  }
  CompareWhatWasRead(runs.front(), world, first);
  done.remarks.insert(done.remarks.begin(), std::move(first.remarks));
  Together(world.host, [&] {
    if (file) file->Write(values);
  });
  if (file) done.contents = file->Contents();
  return done;
}

std::vector<std::string> RemarksOfFolds(const std::vector<std::vector<std::string>>& remarks) {
  std::vector<std::string> lines;
  for (const std::vector<std::string>& of_fold : remarks) {
    for (const std::string& line : of_fold) {
      if (std::ranges::find(lines, line) == lines.end()) lines.push_back(line);
    }
  }
  for (std::string& line : lines) {
    std::vector<size_t> folds;
    for (size_t i = 0; i < remarks.size(); ++i) {
      if (std::ranges::find(remarks[i], line) != remarks[i].end()) folds.push_back(i);
    }
    if (folds.size() == remarks.size()) continue;
    line = fmt::format("fold{} {}: {}", folds.size() == 1 ? "" : "s", fmt::join(folds, ", "), line);
  }
  return lines;
}

}  // namespace lockstep
