#include "models/losses/make_loss.h"

#include <google/protobuf/repeated_field.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "models/losses/losses.h"

namespace lockstep {
namespace {

using Weights = google::protobuf::RepeatedField<double>;

// Returns the weights, which may be empty. Throws Error (kUsage) if there are weights, but not one for each class.
std::vector<double> WeightsOf(const std::string& field, const Weights& weights, int64_t classes) {
  if (weights.size() != 0 && weights.size() != classes) {
    throw UsageError("loss.{}: {} weight{} where the data have {}: give one for each", field,
                     weights.size(), weights.size() == 1 ? "" : "s", classes);
  }
  return {weights.begin(), weights.end()};
}

}  // namespace

std::shared_ptr<LossFunction> MakeLossFunction(const config::Loss& config, Task task,
                                               int64_t classes) {
  const std::vector<double> class_weights =
      WeightsOf("class_weight", config.class_weight(), classes);
  const std::vector<double> positive_weights =
      WeightsOf("positive_weight", config.positive_weight(), classes);
  const bool is_own = config.type() == config::Loss::OF_TASK;
  if (is_own && class_weights.empty() && positive_weights.empty()) return nullptr;
  const double gamma = is_own ? 0 : config.gamma();
  switch (task) {
    case Task::kClassification:
    case Task::kSegmentation:
      return MakeClassLoss(task, class_weights, gamma);
    case Task::kMultiLabel:
      return MakeLabelLoss(positive_weights, gamma);
    case Task::kRegression:
      return MakeNumberLoss(config);
    case Task::kLanguage:
      break;
  }
  throw UsageError("loss: tokens have the loss of the next token: leave it out");
}

}  // namespace lockstep
