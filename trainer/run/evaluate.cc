#include "trainer/run/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "observe/flops.h"
#include "trainer/step/precision.h"

namespace lockstep {

void ForEachBatch(const Dataset& dataset, const Preprocessing& preprocessing, int64_t global_batch,
                  const LoaderOptions& loader_options, const World& world,
                  const std::function<void(const DeviceBatch& batch)>& visit) {
  const at::NoGradGuard no_grad;
  const Sampler sampler({.samples = dataset.size(),
                         .global_batch = std::max<int64_t>(global_batch, world.size()),
                         .rank = world.rank(),
                         .ranks = world.size(),
                         .shuffle = false});
  Input input(dataset, preprocessing, sampler, loader_options, world.device);
  for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const DeviceBatch batch = input.feed.Next();
    if (!batch.origin.indices.empty()) visit(batch);
  }
}

std::vector<Metric> Evaluate(Model& model, const Preprocessing& preprocessing,
                             const Dataset& dataset, int64_t global_batch,
                             const LoaderOptions& loader_options, config::Precision precision,
                             const World& world) {
  Metrics metrics(dataset.spec(), dataset.size(), world.device, world.communicator, world.host);
  const Evaluating evaluating(model);
  ForEachBatch(dataset, preprocessing, global_batch, loader_options, world,
               [&](const DeviceBatch& batch) {
                 const Autocast autocast(world.device, precision);
                 const at::Tensor output = model.Forward(preprocessing(batch.input));
                 metrics.Add(batch.origin.indices.front(), output, batch.target,
                             model.LossSum(output, batch.target), model.WeightSum(batch.target));
               });
  return metrics.Finish();
}

void RequireMetric(const std::string& field, const std::string& metric, const Dataset* validation) {
  if (metric.empty()) return;
  if (validation == nullptr) {
    throw UsageError(
        "{}: no samples are held back to find the best {} on: set data.validation_fraction or "
        "data.validation",
        field, metric);
  }
  const std::vector<std::string> known = MetricNames(validation->spec());
  if (std::ranges::find(known, metric) != known.end()) return;
  throw UsageError("{}: no metric \"{}\"{} (of this task: {})", field, metric,
                   DidYouMean(metric, known), fmt::join(known, ", "));
}

int64_t ForwardFlops(Model& model, const Preprocessing& preprocessing, const DeviceBatch& batch,
                     config::Precision precision, const World& world) {
  const at::NoGradGuard no_grad;
  const Autocast autocast(world.device, precision);
  model.eval();
  const int64_t flops = CountFlops([&] { model.Forward(preprocessing(batch.input)); });
  model.train();
  return flops;
}

}  // namespace lockstep
