#include "use/predict.h"

#include <ATen/ATen.h>

#include <deque>
#include <vector>

#include "base/error.h"
#include "data/dataset/target_unit.h"
#include "trainer/run/evaluate.h"
#include "trainer/step/precision.h"

namespace lockstep {
namespace {

// Returns one model's predictions for a batch, on the model's device.
at::Tensor ValuesOf(const Predictor& predictor, const TargetUnit& in_own_unit, const World& world,
                    const at::Tensor& input) {
  const SampleSpec& spec = predictor.spec;
  const Autocast autocast(world.device, predictor.precision);
  const at::Tensor output = predictor.model.Forward(predictor.preprocessing(input));
  const bool masks = spec.task == Task::kSegmentation;
  at::Tensor values = output.narrow(masks ? 1 : -1, 0, spec.classes);
  values = masks ? values.argmax(1) : values.to(at::kDouble);
  if (spec.task == Task::kClassification) values = values.softmax(1);
  if (spec.task == Task::kMultiLabel) values = values.sigmoid();
  if (spec.task == Task::kRegression) values = in_own_unit(values);
  return values;
}

}  // namespace

at::Tensor BestOf(const at::Tensor& probabilities) {
  const auto [probability, label] = probabilities.max(1);
  return at::stack({label.to(at::kDouble), probability}, 1);
}

at::Tensor Predict(std::span<const Predictor> predictors, const Dataset& dataset,
                   int64_t global_batch, const LoaderOptions& loader_options, const World& world,
                   bool best_only) {
  const Predictor& first = predictors.front();
  const SampleSpec& spec = first.spec;
  if (spec.task == Task::kLanguage) {
    throw Error::OnEveryRank(ExitStatus::kUsage, "predict is for samples, not for tokens");
  }
  const bool masks = spec.task == Task::kSegmentation;
  // Each rank fills in its own samples and leaves the others at zero, so the sum over the ranks has all samples.
  at::Tensor predictions =
      masks ? at::zeros({dataset.size(), spec.shape[1], spec.shape[2]}, at::kByte)
            : at::zeros({dataset.size(), best_only ? 2 : spec.classes}, at::kDouble);
  std::deque<Evaluating> evaluating;
  std::vector<TargetUnit> units;
  for (const Predictor& predictor : predictors) {
    evaluating.emplace_back(predictor.model);
    units.emplace_back(predictor.spec, world.device);
  }
  const auto mean_of = [&](const at::Tensor& input) {
    at::Tensor values = ValuesOf(first, units.front(), world, input);
    if (predictors.size() == 1) return values;
    // The mean is computed on the CPU, because a GPU divides by multiplying with the inverse, which gives other bits.
    values = values.cpu();
    for (size_t i = 1; i < predictors.size(); ++i) {
      values += ValuesOf(predictors[i], units[i], world, input).cpu();
    }
    values /= static_cast<double>(predictors.size());
    return values;
  };
  ForEachBatch(dataset, first.preprocessing, global_batch, loader_options, world,
               [&](const DeviceBatch& batch) {
                 at::Tensor values = mean_of(batch.input);
                 if (best_only) values = BestOf(values);
                 predictions.narrow(0, batch.origin.indices.front(), values.size(0)).copy_(values);
               });
  world.host.AllReduceSum(predictions, world.host.MakeLabel("predictions")).Wait();
  return predictions;
}

}  // namespace lockstep
