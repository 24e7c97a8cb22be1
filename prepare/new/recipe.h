// Recipe: the hyperparameters of a training, chosen only by the size of the data and the task.
//
// How: for tables, the choices were compared with scikit-learn's HistGradientBoosting and pytabkit's RealMLP on five
// tables (tests/bench/tables_against_peers.py).
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
  std::vector<int64_t> hidden;  // widths of an mlp's hidden layers
  double dropout = 0;
};

// Returns the recipe for a table. `rows` is the number of training rows, and `inputs` is the number of inputs of a row.
Recipe RecipeOfTable(int64_t rows, int64_t inputs, LearnTask task, int64_t outputs);

// Returns the recipe for images. `images` is the number of training images.
Recipe RecipeOfImages(int64_t images);

// Returns the recipe for tokens. `samples` is the number of training samples.
Recipe RecipeOfTokens(int64_t samples);

}  // namespace lockstep
