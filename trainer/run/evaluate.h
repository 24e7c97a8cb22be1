// Evaluates a model on a data set, and predicts with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "models/model.h"
#include "observe/metrics.h"
#include "trainer/run/input.h"
#include "trainer/step/world.h"

namespace lockstep {

// Returns how many samples all ranks together evaluate at once. It is the number that they train on at once; training
// takes more memory.
inline int64_t EvaluationBatch(const config::Config& config, int64_t accumulation) {
  return config.global_batch() / accumulation;
}

// Evaluates each sample of `dataset` exactly once, over all ranks, `global_batch` at a time. Every
// rank must call it and gets the same result.
std::vector<Metric> Evaluate(Model& model, const Preprocessing& preprocessing,
                             const Dataset& dataset, int64_t global_batch,
                             const LoaderOptions& loader_options, config::Precision precision,
                             const World& world);

// Throws Error (kUsage) if `metric`, the value of the config's field `field`, is not a metric of the data set `validation`,
// which is null if there is none.
void RequireMetric(const std::string& field, const std::string& metric, const Dataset* validation);

// Returns how many floating-point operations a forward pass of `batch` makes (observe/flops.h).
int64_t ForwardFlops(Model& model, const Preprocessing& preprocessing, const DeviceBatch& batch,
                     config::Precision precision, const World& world);

// Returns, for each row of probabilities, [samples, classes], the most probable class (the first of several) and its
// probability: float64 [samples, 2].
at::Tensor BestOf(const at::Tensor& probabilities);

// Predicts each sample of `dataset`. Returns, on the CPU, float64 [samples, classes]: the softmax of classes, the
// sigmoid of labels, or numbers. With `best_only`, which is for classes, BestOf() of the softmax. For masks the class
// with the greatest output, uint8 [samples, height, width]. Every rank must call it and gets all predictions in order.
// For tokens throws Error (kUsage) on every rank.
at::Tensor Predict(Model& model, const Preprocessing& preprocessing, const Dataset& dataset,
                   int64_t global_batch, const LoaderOptions& loader_options,
                   config::Precision precision, const World& world, bool best_only);

}  // namespace lockstep
