// Using a model: its loss and accuracy on a data set, and its predictions.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "trainer/model.h"
#include "trainer/task.h"
#include "trainer/world.h"

namespace lockstep {

struct Evaluation {
  double loss = 0;      // mean over the samples
  double accuracy = 0;  // share of samples whose greatest output is their label's
};

// Evaluates each sample of `dataset` exactly once, over all ranks, `global_batch` at a time. Every
// rank must call it and gets the same result.
Evaluation Evaluate(Model& model, const Preprocessing& preprocessing, const Dataset& dataset,
                    int64_t global_batch, const LoaderOptions& loader_options,
                    config::Precision precision, const World& world);

struct Prediction {
  int64_t label = 0;       // the class with the greatest output
  double probability = 0;  // its softmax
};

// Predicts each sample of `dataset`. Every rank must call it and gets all predictions in order.
std::vector<Prediction> Predict(Model& model, const Preprocessing& preprocessing,
                                const Dataset& dataset, int64_t global_batch,
                                const LoaderOptions& loader_options, config::Precision precision,
                                const World& world);

}  // namespace lockstep
