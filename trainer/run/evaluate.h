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

// Returns how many samples all ranks together evaluate at once: as many as are in one micro-batch of all ranks in
// training. An evaluation of this many samples fits in memory, because training on as many samples takes more memory.
inline int64_t EvaluationBatch(const config::Config& config, int64_t accumulation) {
  return config.global_batch() / accumulation;
}

// Sets a model to eval mode. The destructor restores the model's previous mode.
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

// Calls visit(batch) for each batch of this rank in one pass over `dataset`, in the order of the data set. The batches
// that all ranks visit at the same time have `global_batch` samples together, or one sample on each rank if
// `global_batch` is less than the number of ranks; the last batches may have fewer. Loader threads do their part of
// `preprocessing` (Preprocessing::InLoader()), and `visit` must call `preprocessing` for the rest. `visit` runs without
// gradients (at::NoGradGuard). Every rank must call ForEachBatch().
void ForEachBatch(const Dataset& dataset, const Preprocessing& preprocessing, int64_t global_batch,
                  const LoaderOptions& loader_options, const World& world,
                  const std::function<void(const DeviceBatch& batch)>& visit);

// Evaluates each sample of `dataset` exactly once, and returns the metrics. Each sample is evaluated by one of the
// ranks, and all ranks together evaluate `global_batch` samples at a time. Every rank must call Evaluate(), and every
// rank gets the same result.
std::vector<Metric> Evaluate(Model& model, const Preprocessing& preprocessing,
                             const Dataset& dataset, int64_t global_batch,
                             const LoaderOptions& loader_options, config::Precision precision,
                             const World& world);

// Throws Error (kUsage) if `metric`, the value of the config field `field`, is not a metric of the task of
// `validation`, or if `validation` is null, which means that there are no validation samples. Does nothing if `metric`
// is empty.
void RequireMetric(const std::string& field, const std::string& metric, const Dataset* validation);

// Returns how many floating-point operations a forward pass of `batch` in eval mode makes (observe/flops.h). Sets the
// model to training mode afterwards.
int64_t ForwardFlops(Model& model, const Preprocessing& preprocessing, const DeviceBatch& batch,
                     config::Precision precision, const World& world);

}  // namespace lockstep
