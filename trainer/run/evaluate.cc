#include "trainer/run/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "data/dataset/target_unit.h"
#include "observe/flops.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

// Calls visit(batch, output) for each of this rank's batches of one pass in order, model in eval
// mode.
template <typename Visit>
void ForEachBatch(Model& model, const Preprocessing& preprocessing, const Dataset& dataset,
                  int64_t global_batch, const LoaderOptions& loader_options,
                  config::Precision precision, const World& world, const Visit& visit) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  const Sampler sampler({.samples = dataset.size(),
                         .global_batch = std::max<int64_t>(global_batch, world.size()),
                         .rank = world.rank(),
                         .ranks = world.size(),
                         .shuffle = false});
  Input input(dataset, preprocessing, sampler, loader_options, world.device);
  for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const DeviceBatch batch = input.feed.Next();
    if (batch.origin.indices.empty()) continue;
    const Autocast autocast(world.device, precision);
    visit(batch, model.Forward(preprocessing(batch.input)));
  }
  model.train(was_training);
}

}  // namespace

std::vector<Metric> Evaluate(Model& model, const Preprocessing& preprocessing,
                             const Dataset& dataset, int64_t global_batch,
                             const LoaderOptions& loader_options, config::Precision precision,
                             const World& world) {
  Metrics metrics(dataset.spec(), dataset.size(), world.device, world.communicator, world.host);
  ForEachBatch(model, preprocessing, dataset, global_batch, loader_options, precision, world,
               [&](const DeviceBatch& batch, const at::Tensor& output) {
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

at::Tensor BestOf(const at::Tensor& probabilities) {
  const auto [probability, label] = probabilities.max(1);
  return at::stack({label.to(at::kDouble), probability}, 1);
}

at::Tensor Predict(Model& model, const Preprocessing& preprocessing, const Dataset& dataset,
                   int64_t global_batch, const LoaderOptions& loader_options,
                   config::Precision precision, const World& world, bool best_only) {
  const SampleSpec& spec = dataset.spec();
  if (spec.task == Task::kLanguage) {
    throw Error::OnEveryRank(ExitStatus::kUsage, "predict is for samples, not for tokens");
  }
  const bool masks = spec.task == Task::kSegmentation;
  // Each rank fills in its samples and leaves the others' at zero: the sum over the ranks is all of
  // them.
  at::Tensor predictions =
      masks ? at::zeros({dataset.size(), spec.shape[1], spec.shape[2]}, at::kByte)
            : at::zeros({dataset.size(), best_only ? 2 : spec.classes}, at::kDouble);
  const TargetUnit in_own_unit(spec, world.device);
  ForEachBatch(model, preprocessing, dataset, global_batch, loader_options, precision, world,
               [&](const DeviceBatch& batch, const at::Tensor& output) {
                 at::Tensor values = output.narrow(masks ? 1 : -1, 0, spec.classes);
                 values = masks ? values.argmax(1) : values.to(at::kDouble);
                 if (spec.task == Task::kClassification) values = values.softmax(1);
                 if (spec.task == Task::kMultiLabel) values = values.sigmoid();
                 if (best_only) values = BestOf(values);
                 if (spec.task == Task::kRegression) values = in_own_unit(values);
                 predictions.narrow(0, batch.origin.indices.front(), values.size(0)).copy_(values);
               });
  world.host.AllReduceSum(predictions, world.host.MakeLabel("predictions")).Wait();
  return predictions;
}

}  // namespace lockstep
