// Predict(): what trained models say of the samples of a data set.
//
// Promise: each sample is read once, however many models predict it. The prediction of several models is the mean, in
// float64, summed in their order on the CPU: the same bits as the mean of what each of them says alone.
//
// what can fail -> what the caller sees -> the test that shows it
//   tokens, of which there is nothing to predict -> Error (kUsage) on every rank -> (none)
//   a sample cannot be read -> Error (kData), as the data set says it -> tests/images_test.py
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "data/feed/loader.h"
#include "models/model.h"
#include "trainer/step/preprocessing.h"
#include "trainer/step/world.h"

namespace lockstep {

// A model, what is done to samples before it gets them, and what its outputs mean.
struct Predictor {
  Model& model;
  const Preprocessing& preprocessing;
  SampleSpec spec;  // as it was in training, with the unit of the numbers that the model has learnt
  config::Precision precision = config::FP32;
};

// Returns, for each row of probabilities, [samples, classes], the most probable class (the first of several) and its
// probability: float64 [samples, 2].
at::Tensor BestOf(const at::Tensor& probabilities);

// Predicts each sample of `dataset`, `global_batch` of all ranks at a time. Returns, on the CPU, float64 [samples,
// classes]: the softmax of classes, the sigmoid of labels, or numbers. With `best_only`, which is for classes, BestOf()
// of that. For masks, which only one model may predict, the class with the greatest output, uint8 [samples, height,
// width].
//
// There is at least one predictor. The tasks and the classes of all are the same; so is, on a CPU, the preprocessing of
// pixels, which loader threads do. Every rank must call it and gets all predictions in order.
at::Tensor Predict(std::span<const Predictor> predictors, const Dataset& dataset,
                   int64_t global_batch, const LoaderOptions& loader_options, const World& world,
                   bool best_only);

}  // namespace lockstep
