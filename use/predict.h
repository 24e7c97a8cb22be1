// Predict(): computes the predictions of trained models for the samples of a data set.
//
// Promise: each sample is read only once, even for several models. The prediction of several models is the mean of
// their predictions. The mean is summed in float64 on the CPU in the order of the models, so it has the same bits as
// the mean of predictions that are made one model at a time.
//
// what can fail -> what the caller sees -> the test that shows it
//   a data set of tokens, for which nothing is predicted -> Error (kUsage) on every rank -> (none)
//   a sample cannot be read -> Error (kData) from the data set -> tests/images_test.py
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

// A trained model, the preprocessing of its inputs, and the meaning of its outputs.
struct Predictor {
  Model& model;
  const Preprocessing& preprocessing;
  SampleSpec spec;  // as in training, with the mean and std of regression targets
  config::Precision precision = config::FP32;
};

// Returns, for probabilities [samples, classes], float64 [samples, 2]: for each sample the index of the most probable
// class (the first one if several are equally probable) and its probability.
at::Tensor BestOf(const at::Tensor& probabilities);

// Predicts all samples of `dataset`, in batches of `global_batch` samples over all ranks. Returns, on the CPU, float64
// [samples, classes]: softmax probabilities of classes, sigmoid probabilities of labels, or regression outputs. If
// `best_only` is set, which is allowed only for classification, returns BestOf() of the probabilities. For
// segmentation, for which there must be only one predictor, returns the class with the greatest output, uint8 [samples,
// height, width].
//
// `predictors` must not be empty. All predictors must have the same task and classes. On a CPU they must also have the
// same preprocessing of pixels, because the loader threads preprocess the samples for all of them. Every rank must call
// the function, and gets all predictions in the order of the data set.
at::Tensor Predict(std::span<const Predictor> predictors, const Dataset& dataset,
                   int64_t global_batch, const LoaderOptions& loader_options, const World& world,
                   bool best_only);

}  // namespace lockstep
