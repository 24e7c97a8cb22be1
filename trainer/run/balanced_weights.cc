#include "trainer/run/balanced_weights.h"

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

}  // namespace lockstep
