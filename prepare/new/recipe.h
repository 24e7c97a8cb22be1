// Recipe: the hyperparameters of a training, chosen only by the size of the data, the task and the share of the rarest
// class.
//
// How: for tables, the choices were compared with scikit-learn's HistGradientBoosting and pytabkit's RealMLP on small
// tables, and with HistGradientBoosting on noisy ones with few positive rows (tests/bench/tables_against_peers.py). On
// the noisy ones, a long training learns the noise before its rate falls, so the whole schedule must be short; and a
// single perceptron finds thresholds later than trees do, and an ensemble on bins of the numbers does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prepare/new/table_plan.h"

namespace lockstep {

struct Recipe {
  int64_t batch = 64;
  int64_t epochs = 10;
  double rate = 0.001;
  double weight_decay = 0;
  int64_t warmup_steps = 0;
  int64_t patience = 5;         // in evaluations; 0: no early stopping
  std::string metric = "";      // metric that chooses the best epoch
  std::vector<int64_t> hidden;  // widths of the hidden layers
  double dropout = 0;
  int64_t members = 0;      // perceptrons of a tabm; 0: an mlp
  int64_t number_bins = 0;  // model.tabm.number_bins
};

// Returns the recipe for a table. `rows` is the number of training rows, and `outputs` is the number of outputs.
Recipe RecipeOfTable(const TablePlan& plan, int64_t rows, int64_t outputs);

// Returns the recipe for samples of numbers that no table describes. `inputs` is the number of numbers of a sample.
Recipe RecipeOfNumbers(int64_t samples, int64_t inputs, LearnTask task, int64_t outputs);

// Returns the recipe for images. `images` is the number of training images.
Recipe RecipeOfImages(int64_t images);

// Returns the recipe for tokens. `samples` is the number of training samples.
Recipe RecipeOfTokens(int64_t samples);

}  // namespace lockstep
