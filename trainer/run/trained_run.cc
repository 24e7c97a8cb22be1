#include "trainer/run/trained_run.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/safetensors.h"
#include "ckpt/weights.h"
#include "comm/reduce/reducer.h"
#include "comm/together.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/extensions.h"
#include "trainer/run/input.h"
#include "trainer/run/make_model.h"
#include "trainer/run/open_data.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

// A run's model with its weights, and the samples that it is to be used on.
struct LoadedRun {
  std::string weights;  // on rank 0: what they are, if they are not the final ones
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<Model> model;
  std::optional<Preprocessing> preprocessing;
  config::Precision precision = config::FP32;
};

// `open` returns the samples, or null where there are none. Every rank must call it. Throws Error on
// every rank.
template <typename Open>
LoadedRun LoadRun(const std::string& run, config::Config config, const Extensions& extensions,
                  const World& world, const Open& open) {
  LoadedRun loaded;
  Together(world.host, [&] {
    loaded.dataset = open();
    if (!loaded.dataset) {
      throw UsageError("{}: the run held no samples back: name some with --input", run);
    }
    config.clear_init_from();
    config.set_replace_head(false);
    loaded.precision = PrecisionOn(world.device, config.precision());
    SetUpNumerics(loaded.precision, config.deterministic());
    loaded.model = MakeModel(config, SpecOf(config.data()), extensions.models, world);
    if (world.rank() == 0) {
      const Weights weights = ReadWeights(run);
      CopyByName(weights.path, weights.tensors, loaded.model->State());
      const bool are_final = weights.path == RunWeightsPath(ParseRunPoint(run).run_dir);
      if (!are_final) loaded.weights = weights.Name();
    }
    loaded.preprocessing.emplace(config.data(), loaded.dataset->spec(), world.device,
                                 loaded.precision);
  });
  BroadcastFromRankZero(loaded.model->State(), world.communicator);
  return loaded;
}

}  // namespace

RunEvaluation EvaluateRun(const std::string& run, const config::Config& config,
                          const std::vector<std::string>& files, const Extensions& extensions,
                          const World& world) {
  const LoadedRun loaded = LoadRun(run, config, extensions, world, [&] {
    return files.empty() ? OpenTrainingData(config, extensions.datasets, world).validation
                         : OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/false,
                                     extensions.datasets, world);
  });
  std::vector<Metric> metrics =
      Evaluate(*loaded.model, *loaded.preprocessing, *loaded.dataset,
               EvaluationBatch(config, config.accumulation()),
               LoaderOptionsFor(config.loader(), *loaded.dataset, world), loaded.precision, world);
  return {.weights = loaded.weights,
          .metrics = std::move(metrics),
          .samples = loaded.dataset->size(),
          .bad_samples = loaded.dataset->TakeReports()};
}

RunPredictions PredictRun(const std::string& run, const config::Config& config,
                          const PredictionRequest& request, const Extensions& extensions,
                          const World& world) {
  std::optional<PredictionFile> file;  // on rank 0
  Together(world.host, [&] {
    CheckRequest(request, config.data());
    if (world.rank() == 0) file.emplace(request, config.data());
  });
  const LoadedRun loaded = LoadRun(run, config, extensions, world, [&] {
    return OpenFiles(config, request.files, SpecOf(config.data()), /*label_optional=*/true,
                     extensions.datasets, world);
  });
  Together(world.host, [&] {
    if (file) file->Prepare(*loaded.dataset);
  });
  const at::Tensor values =
      Predict(*loaded.model, *loaded.preprocessing, *loaded.dataset,
              EvaluationBatch(config, config.accumulation()),
              LoaderOptionsFor(config.loader(), *loaded.dataset, world), loaded.precision, world,
              WritesBestOnly(request, config.data()));
  Together(world.host, [&] {
    if (file) file->Write(values);
  });
  return {.weights = loaded.weights,
          .samples = loaded.dataset->size(),
          .contents = file ? file->Contents() : ""};
}

}  // namespace lockstep
