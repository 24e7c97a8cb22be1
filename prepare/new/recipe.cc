#include "prepare/new/recipe.h"

#include <algorithm>

#include "base/ceil_divide.h"

namespace lockstep {
namespace {

// The least and the greatest value that may be chosen.
struct Range {
  int64_t least, most;
};

// Chooses the batch, the epochs and the warm-up. The batch is `batches.least` times the largest power of two for which
// the batch is at most `batches.most` and an epoch has at least 20 full batches; it is `batches.least` if an epoch has
// fewer than 20 full batches even with that batch. The number of epochs is the one with which all epochs together have
// about `steps` steps, limited to the range `epochs`. The warm-up takes a twentieth of all steps, but at least 1 and at
// most 1,000.
Recipe Paced(int64_t samples, int64_t steps, const Range& batches, const Range& epochs) {
  constexpr int64_t kStepsOfEpoch = 20, kMostWarmup = 1000;
  Recipe recipe;
  recipe.batch = batches.least;
  while (recipe.batch * 2 <= batches.most && samples / (recipe.batch * 2) >= kStepsOfEpoch) {
    recipe.batch *= 2;
  }
  const int64_t each = std::max<int64_t>(1, CeilDivide(samples, recipe.batch));
  recipe.epochs = std::clamp(steps / each, epochs.least, epochs.most);
  recipe.warmup_steps = std::clamp<int64_t>(recipe.epochs * each / 20, 1, kMostWarmup);
  return recipe;
}

std::string MetricOf(LearnTask task, int64_t outputs) {
  switch (task) {
    case LearnTask::kClassification:
      return outputs == 2 ? "auc" : "log_loss";
    case LearnTask::kMultiLabel:
      return "auc";
    case LearnTask::kRegression:
      return "rmse";
  }
  return "loss";
}

}  // namespace

Recipe RecipeOfTable(int64_t rows, int64_t inputs, LearnTask task, int64_t outputs) {
  Recipe recipe = Paced(rows, 2000, {16, 1024}, {10, 100});
  recipe.patience = std::max<int64_t>(5, recipe.epochs / 4);
  recipe.rate = 0.003;
  recipe.weight_decay = 0.1;
  recipe.dropout = inputs > rows ? 0.5 : rows < 10'000 ? 0.3 : 0.1;
  recipe.hidden = rows < 2'000    ? std::vector<int64_t>{64}
                  : rows < 50'000 ? std::vector<int64_t>{256, 256, 128}
                                  : std::vector<int64_t>{512, 256, 128};
  recipe.metric = MetricOf(task, outputs);
  return recipe;
}

Recipe RecipeOfImages(int64_t images) {
  Recipe recipe = Paced(images, 10'000, {16, 256}, {30, 100});
  recipe.patience = std::max<int64_t>(5, recipe.epochs / 5);
  recipe.rate = 0.001;
  recipe.weight_decay = 0.05;
  recipe.metric = "accuracy";
  return recipe;
}

Recipe RecipeOfTokens(int64_t samples) {
  Recipe recipe = Paced(samples, 5'000, {4, 64}, {1, 40});
  recipe.patience = 3;
  recipe.rate = 0.0006;
  recipe.weight_decay = 0.1;
  recipe.metric = "loss";
  return recipe;
}

}  // namespace lockstep
