#include "trainer/run/balanced_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "data/dataset/classes_of.h"

namespace lockstep {

void SetBalancedWeights(config::Config& config, const Dataset& train) {
  if (!config.loss().balanced()) return;
  config::Loss& loss = *config.mutable_loss();
  const SampleSpec& spec = train.spec();
  const bool has_labels = spec.task == Task::kMultiLabel;
  std::vector<int64_t> counts(spec.classes);  // number of samples of each class or label
  if (has_labels) {
    std::vector<float> applies(spec.classes);
    for (int64_t i = 0; i < train.size(); ++i) {
      train.ReadTarget(i, reinterpret_cast<std::byte*>(applies.data()));
      for (int64_t label = 0; label < spec.classes; ++label) counts[label] += applies[label] > 0;
    }
  } else {
    for (const int64_t of_class : ClassesOf(train)) ++counts.at(of_class);
  }
  for (int64_t i = 0; i < spec.classes; ++i) {
    if (counts[i] == 0) {
      throw UsageError("loss.balanced: no training sample has {} {}: give loss.{}",
                       has_labels ? "label" : "class", i,
                       has_labels ? "positive_weight" : "class_weight");
    }
    const auto count = static_cast<double>(counts[i]);
    const auto samples = static_cast<double>(train.size());
    if (has_labels) {
      loss.add_positive_weight((samples - count) / count);
    } else {
      loss.add_class_weight(samples / (static_cast<double>(spec.classes) * count));
    }
  }
  loss.set_balanced(false);
}

void RequireWeight(const config::Config& config, const Dataset& train) {
  const auto& weights = config.loss().class_weight();
  // If the number of weights is not the number of classes, MakeLossFunction() reports it.
  const SampleSpec& spec = train.spec();
  if (weights.size() != spec.classes || std::ranges::count(weights, 0.0) == 0) return;
  std::vector<uint8_t> has_weight(UINT8_MAX + 1);  // of the classes of masks
  for (int64_t i = 0; i < weights.size() && i <= UINT8_MAX; ++i) has_weight[i] = weights[i] > 0;
  std::vector<uint8_t> mask(spec.task == Task::kSegmentation ? spec.targets() : 0);
  for (int64_t i = 0; i < train.size(); ++i) {
    if (spec.task == Task::kSegmentation) {
      train.ReadTarget(i, reinterpret_cast<std::byte*>(mask.data()));
      if (std::ranges::any_of(mask, [&](uint8_t label) { return has_weight[label] != 0; })) return;
    } else {
      int64_t of_class = Dataset::kNoLabel;
      train.ReadTarget(i, reinterpret_cast<std::byte*>(&of_class));
      if (of_class >= 0 && weights.at(static_cast<int>(of_class)) > 0) return;
    }
  }
  throw UsageError(
      "loss.class_weight: all training samples are of classes whose weight is 0: nothing would be "
      "trained: give a class that they have a weight above 0");
}

}  // namespace lockstep
