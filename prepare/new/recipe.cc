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

// Returns whether one of two classes is rare, so that most of what training rows show of it is chance.
bool HasRareClass(const TablePlan& plan) {
  constexpr double kRare = 0.2;
  return plan.task == LearnTask::kClassification && plan.classes == 2 && plan.rarest < kRare;
}

// Returns the recipe of an ensemble on bins of the numbers.
Recipe RecipeOfEnsemble(int64_t rows, bool has_rare_class) {
  constexpr int64_t kLeastBatch = 256, kMostBatch = 4096, kStepsOfEpoch = 200;
  Recipe recipe;
  recipe.batch = kLeastBatch;
  while (recipe.batch < kMostBatch && rows / (2 * recipe.batch) >= kStepsOfEpoch) recipe.batch *= 2;
  // With a rare class, longer trainings learn the chance.
  const int64_t each = std::max<int64_t>(1, CeilDivide(rows, recipe.batch));
  recipe.epochs = std::clamp<int64_t>((has_rare_class ? 60 : 1500) / each, 20, 60);
  recipe.warmup_steps = std::max<int64_t>(1, recipe.epochs * each / 20);
  recipe.patience = std::max<int64_t>(5, recipe.epochs / 4);
  recipe.rate = 0.01;
  recipe.weight_decay = 0.1;
  recipe.dropout = 0.1;
  recipe.hidden = {128, 128};
  recipe.members = 16;
  recipe.number_bins = 8;
  return recipe;
}

}  // namespace

Recipe RecipeOfTable(const TablePlan& plan, int64_t rows, int64_t outputs) {
  constexpr int64_t kEnoughRows = 2000, kMostNumbers = 200, kMostInputs = 3000;
  const bool has_rare_class = HasRareClass(plan);
  // Each input costs an ensemble a weight for each member and bin.
  if ((rows < kEnoughRows && !has_rare_class) || plan.numbers > kMostNumbers ||
      plan.inputs > kMostInputs) {
    return RecipeOfNumbers(rows, plan.inputs, plan.task, outputs);
  }
  Recipe recipe = RecipeOfEnsemble(rows, has_rare_class);
  recipe.metric = MetricOf(plan.task, outputs);
  return recipe;
}

Recipe RecipeOfNumbers(int64_t samples, int64_t inputs, LearnTask task, int64_t outputs) {
  Recipe recipe = Paced(samples, 2000, {16, 1024}, {10, 100});
  recipe.patience = std::max<int64_t>(5, recipe.epochs / 4);
  recipe.rate = 0.003;
  recipe.weight_decay = 0.1;
  recipe.dropout = inputs > samples ? 0.5 : samples < 10'000 ? 0.3 : 0.1;
  recipe.hidden = samples < 2'000    ? std::vector<int64_t>{64}
                  : samples < 50'000 ? std::vector<int64_t>{256, 256, 128}
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
