// Recipe: how a model is trained, chosen from the size of the data and the task alone, never from a file's name.
//
// How: the choices for tables were measured beside scikit-learn's HistGradientBoosting and pytabkit's RealMLP on five
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
  int64_t patience = 5;         // evaluations; 0: the run does not end early
  std::string metric = "";      // that says which epoch is best
  std::vector<int64_t> hidden;  // of an mlp
  double dropout = 0;
};

// `rows` are those to train on, `inputs` the numbers of each.
Recipe RecipeOfTable(int64_t rows, int64_t inputs, LearnTask task, int64_t outputs);

// `images` are those to train on.
Recipe RecipeOfImages(int64_t images);

// `samples` are those to train on.
Recipe RecipeOfTokens(int64_t samples);

}  // namespace lockstep
