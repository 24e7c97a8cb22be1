// Recipe: how a model is trained, chosen from the size of the data and the task alone, never from a file's name.
//
// How: the choices for tables were measured against scikit-learn's HistGradientBoosting on five tables, each with five
// splits (tests/bench/tables_against_peers.py).
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
  int64_t patience = 5;         // evaluations; 0: the run does not end early
  std::string metric = "";      // that says which epoch is best
  std::vector<int64_t> hidden;  // of an mlp
  double dropout = 0;
};

// `rows` are those to train on, `inputs` the numbers of each.
Recipe RecipeOfTable(int64_t rows, int64_t inputs, LearnTask task, int64_t outputs);

// `images` are those to train on.
Recipe RecipeOfImages(int64_t images);

// `tokens` are those to train on, `samples` how many samples they make.
Recipe RecipeOfTokens(int64_t samples);

// Returns the largest power of two that gives an epoch at least `steps` steps, between `least` and `most`.
int64_t BatchFor(int64_t samples, int64_t steps, int64_t least, int64_t most);

}  // namespace lockstep
