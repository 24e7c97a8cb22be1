#include "prepare/new/recipe.h"

#include <algorithm>

#include "base/ceil_divide.h"

namespace lockstep {
namespace {

// Epochs that together take about `steps` steps.
int64_t EpochsFor(int64_t samples, int64_t batch, int64_t steps, int64_t least, int64_t most) {
  const int64_t each = std::max<int64_t>(1, CeilDivide(samples, batch));
  return std::clamp(steps / each, least, most);
}

int64_t WarmupFor(int64_t samples, int64_t batch, int64_t epochs) {
  const int64_t steps = epochs * std::max<int64_t>(1, CeilDivide(samples, batch));
  return std::clamp<int64_t>(steps / 20, 1, 1000);
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

// The largest power of two that gives an epoch at least `steps` steps, between `least` and `most`.
int64_t BatchFor(int64_t samples, int64_t steps, int64_t least, int64_t most) {
  int64_t batch = least;
  while (batch * 2 <= most && samples / (batch * 2) >= steps) batch *= 2;
  return batch;
}

}  // namespace

Recipe RecipeOfTable(int64_t rows, int64_t inputs, LearnTask task, int64_t outputs) {
  constexpr int64_t kStepsOfEpoch = 20, kSteps = 2000;
  Recipe recipe;
  recipe.batch = BatchFor(rows, kStepsOfEpoch, 16, 1024);
  recipe.epochs = EpochsFor(rows, recipe.batch, kSteps, 10, 100);
  recipe.warmup_steps = WarmupFor(rows, recipe.batch, recipe.epochs);
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
  constexpr int64_t kStepsOfEpoch = 20, kSteps = 10'000;
  Recipe recipe;
  recipe.batch = BatchFor(images, kStepsOfEpoch, 16, 256);
  recipe.epochs = EpochsFor(images, recipe.batch, kSteps, 30, 100);
  recipe.warmup_steps = WarmupFor(images, recipe.batch, recipe.epochs);
  recipe.patience = std::max<int64_t>(5, recipe.epochs / 5);
  recipe.rate = 0.001;
  recipe.weight_decay = 0.05;
  recipe.metric = "accuracy";
  return recipe;
}

Recipe RecipeOfTokens(int64_t samples) {
  constexpr int64_t kStepsOfEpoch = 20, kSteps = 5'000;
  Recipe recipe;
  recipe.batch = BatchFor(samples, kStepsOfEpoch, 4, 64);
  recipe.epochs = EpochsFor(samples, recipe.batch, kSteps, 1, 40);
  recipe.warmup_steps = WarmupFor(samples, recipe.batch, recipe.epochs);
  recipe.patience = 3;
  recipe.rate = 0.0006;
  recipe.weight_decay = 0.1;
  recipe.metric = "loss";
  return recipe;
}

}  // namespace lockstep
