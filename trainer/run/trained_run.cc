#include "trainer/run/trained_run.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/output_target.h"
#include "base/files/safetensors.h"
#include "ckpt/weights.h"
#include "comm/reduce/reducer.h"
#include "comm/together.h"
#include "data/arrays/npy.h"
#include "data/tables/csv_cells.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/extensions.h"
#include "trainer/run/input.h"
#include "trainer/run/make_model.h"
#include "trainer/run/open_data.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

// A number of the column `name`; a class by its name, where classes have some, or without a fraction.
std::string CsvCellOf(const std::string& name, double value,
                      const std::vector<std::string>& class_names) {
  if (name == "label") {
    return class_names.empty() ? fmt::format("{:.0f}", value)
                               : AsCsvCell(class_names.at(static_cast<size_t>(value)));
  }
  // All that float32 holds.
  return name.starts_with("value") ? fmt::format("{:.9g}", value) : fmt::format("{:.6f}", value);
}

std::string CsvOf(const Predictions& predictions, const std::vector<std::string>& class_names) {
  std::string csv = fmt::format("index,{}\n", fmt::join(predictions.columns, ","));
  const auto values = predictions.values.accessor<double, 2>();
  for (int64_t i = 0; i < values.size(0); ++i) {
    csv += std::to_string(i);
    for (int64_t column = 0; column < values.size(1); ++column) {
      csv += ',' + CsvCellOf(predictions.columns[column], values[i][column], class_names);
    }
    csv += '\n';
  }
  return csv;
}

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
                          const std::vector<std::string>& files, const std::string& output,
                          const Extensions& extensions, const World& world) {
  const bool masks = config.data().task() == config::Data::SEGMENTATION;
  // Before there is work that could be lost.
  std::optional<OutputTarget> target;
  Together(world.host, [&] {
    if (masks && !output.ends_with(".npy")) {
      throw UsageError("--output {}: masks are written as an array: name a .npy file", output);
    }
    if (world.rank() == 0) target.emplace(output);
  });
  const LoadedRun loaded = LoadRun(run, config, extensions, world, [&] {
    return OpenFiles(config, files, SpecOf(config.data()), /*label_optional=*/true,
                     extensions.datasets, world);
  });
  const Predictions predictions =
      Predict(*loaded.model, *loaded.preprocessing, *loaded.dataset,
              EvaluationBatch(config, config.accumulation()),
              LoaderOptionsFor(config.loader(), *loaded.dataset, world), loaded.precision, world);
  Together(world.host, [&] {
    if (!target) return;
    const at::Tensor& values = predictions.values;
    const std::string text = masks ? NpyHeader("|u1", values.sizes())
                                   : CsvOf(predictions, loaded.dataset->spec().class_names);
    target->Write([&](const AppendBytes& append) {
      append(std::as_bytes(std::span(text)));
      if (masks) append(std::as_bytes(std::span(values.const_data_ptr<uint8_t>(), values.numel())));
    });
  });
  return {.weights = loaded.weights, .samples = loaded.dataset->size()};
}

}  // namespace lockstep
