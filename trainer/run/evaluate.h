// Evaluates a model on a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset/dataset.h"
#include "data/feed/device_feed.h"
#include "models/model.h"
#include "observe/metrics.h"
#include "trainer/run/input.h"
#include "trainer/step/world.h"

namespace lockstep {

// Returns how many samples all ranks together evaluate at once. It is the number of samples that they train on at once.
// These fit in memory, because training takes more memory than evaluation.
inline int64_t EvaluationBatch(const config::Config& config, int64_t accumulation) {
  return config.global_batch() / accumulation;
}

// While an Evaluating object exists, a model is in eval mode. The destructor restores the model's previous mode.
class Evaluating {
 public:
  explicit Evaluating(Model& model) : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~Evaluating() { model_.train(was_training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  Model& model_;
  bool was_training_;
};

// Calls visit(batch) for each of this rank's batches of one pass over `dataset` in order, `global_batch` samples of all
// ranks at a time. Loader threads do their part of `preprocessing` (Preprocessing::InLoader()), and `visit` must do the
// rest. `visit` runs without gradients (at::NoGradGuard). Every rank must call it.
void ForEachBatch(const Dataset& dataset, const Preprocessing& preprocessing, int64_t global_batch,
                  const LoaderOptions& loader_options, const World& world,
                  const std::function<void(const DeviceBatch& batch)>& visit);

// Evaluates each sample of `dataset` exactly once, over all ranks, `global_batch` at a time. Every
// rank must call it and gets the same result.
std::vector<Metric> Evaluate(Model& model, const Preprocessing& preprocessing,
                             const Dataset& dataset, int64_t global_batch,
                             const LoaderOptions& loader_options, config::Precision precision,
                             const World& world);

// Throws Error (kUsage) if `metric`, the value of the config's field `field`, is not a metric of the data set
// `validation`, which is null if there is none.
void RequireMetric(const std::string& field, const std::string& metric, const Dataset* validation);

// Returns how many floating-point operations a forward pass of `batch` makes (observe/flops.h).
int64_t ForwardFlops(Model& model, const Preprocessing& preprocessing, const DeviceBatch& batch,
                     config::Precision precision, const World& world);

}  // namespace lockstep
