#include "trainer/run/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.h"
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

// Predictions::columns of samples.
std::vector<std::string> ColumnsOf(const SampleSpec& spec) {
  if (spec.task == Task::kSegmentation) return {};
  if (spec.task == Task::kClassification) return {"label", "probability"};
  const std::string name = spec.task == Task::kMultiLabel ? "probability" : "value";
  if (spec.classes == 1) return {name};
  std::vector<std::string> columns;
  for (int64_t i = 0; i < spec.classes; ++i) columns.push_back(fmt::format("{}_{}", name, i));
  return columns;
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
                             model.LossSum(output, batch.target));
               });
  return metrics.Finish();
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

Predictions Predict(Model& model, const Preprocessing& preprocessing, const Dataset& dataset,
                    int64_t global_batch, const LoaderOptions& loader_options,
                    config::Precision precision, const World& world) {
  const SampleSpec& spec = dataset.spec();
  if (spec.task == Task::kLanguage) {
    throw Error::OnEveryRank(ExitStatus::kUsage, "predict is for samples, not for tokens");
  }
  Predictions predictions{.columns = ColumnsOf(spec)};
  const bool masks = spec.task == Task::kSegmentation;
  // Each rank fills in its samples and leaves the others' at zero: the sum over the ranks is all of
  // them.
  predictions.values =
      masks ? at::zeros({dataset.size(), spec.shape[1], spec.shape[2]}, at::kByte)
            : at::zeros({dataset.size(), static_cast<int64_t>(predictions.columns.size())},
                        at::kDouble);
  ForEachBatch(
      model, preprocessing, dataset, global_batch, loader_options, precision, world,
      [&](const DeviceBatch& batch, const at::Tensor& output) {
        at::Tensor values = output.narrow(masks ? 1 : -1, 0, spec.classes);
        values = masks ? values.argmax(1) : values.to(at::kDouble);
        if (spec.task == Task::kClassification) {
          const auto [probability, label] = values.softmax(1).max(1);
          values = at::stack({label.to(at::kDouble), probability}, 1);
        } else if (spec.task == Task::kMultiLabel) {
          values = values.sigmoid();
        }
        predictions.values.narrow(0, batch.origin.indices.front(), values.size(0)).copy_(values);
      });
  world.host.AllReduceSum(predictions.values, world.host.MakeLabel("predictions")).Wait();
  return predictions;
}

}  // namespace lockstep
