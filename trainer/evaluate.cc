#include "trainer/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.h"
#include "data/device_feed.h"
#include "trainer/precision.h"

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
  Loader loader(dataset, sampler, loader_options);
  DeviceFeed feed(loader, dataset.spec(), sampler.max_micro_batch(), world.device);
  for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const DeviceBatch batch = feed.Next();
    if (batch.origin.indices.empty()) continue;
    const Autocast autocast(world.device, precision);
    visit(batch, model.Forward(preprocessing(batch.input)));
  }
  model.train(was_training);
}

}  // namespace

Evaluation Evaluate(Model& model, const Preprocessing& preprocessing, const Dataset& dataset,
                    int64_t global_batch, const LoaderOptions& loader_options,
                    config::Precision precision, const World& world) {
  // A model may have more columns, to fill up its matrices.
  const int64_t classes = dataset.spec().classes;
  const at::Tensor sums = at::zeros({2}, at::TensorOptions(world.device).dtype(at::kDouble));
  ForEachBatch(model, preprocessing, dataset, global_batch, loader_options, precision, world,
               [&](const DeviceBatch& batch, const at::Tensor& output) {
                 sums[0].add_(model.LossSum(output, batch.target));
                 sums[1].add_(output.narrow(-1, 0, classes).argmax(-1).eq(batch.target).sum());
               });
  world.communicator.AllReduceSum(sums, world.communicator.MakeLabel("evaluation")).Wait();
  const at::Tensor means =
      (sums / static_cast<double>(dataset.size() * dataset.spec().targets())).cpu();
  return {.loss = means[0].item<double>(), .accuracy = means[1].item<double>()};
}

std::vector<Prediction> Predict(Model& model, const Preprocessing& preprocessing,
                                const Dataset& dataset, int64_t global_batch,
                                const LoaderOptions& loader_options, config::Precision precision,
                                const World& world) {
  if (!dataset.spec().target_shape.empty()) {
    throw Error::OnEveryRank(ExitStatus::kUsage,
                             "predict gives one label for each sample; these have more");
  }
  // Each rank fills in its samples and leaves the others' at zero: the sum over the ranks is all of
  // them.
  const at::Tensor labels = at::zeros({dataset.size()}, at::kLong);
  const at::Tensor probabilities = at::zeros({dataset.size()}, at::kDouble);
  ForEachBatch(model, preprocessing, dataset, global_batch, loader_options, precision, world,
               [&](const DeviceBatch& batch, const at::Tensor& output) {
                 const auto [probability, label] = output.to(at::kDouble).softmax(1).max(1);
                 const auto first = batch.origin.indices.front();
                 const auto count = static_cast<int64_t>(batch.origin.indices.size());
                 labels.narrow(0, first, count).copy_(label);
                 probabilities.narrow(0, first, count).copy_(probability);
               });
  const Label label = world.host.MakeLabel("predictions");
  world.host.AllReduceSum(labels, label).Wait();
  world.host.AllReduceSum(probabilities, label).Wait();
  std::vector<Prediction> predictions(dataset.size());
  for (size_t i = 0; i < predictions.size(); ++i) {
    predictions[i] = {labels.const_data_ptr<int64_t>()[i],
                      probabilities.const_data_ptr<double>()[i]};
  }
  return predictions;
}

}  // namespace lockstep
