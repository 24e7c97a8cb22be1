// PredictionFile: the file that `lockstep predict` writes: which columns it has, and in which format.
//
// Promise: everything that can be wrong with the request, the ids and the sample submission is said before anything is
// predicted.
//
// The file is a table, a row for each sample in the order of the files: the sample's name; its fold, if several folds
// held samples back; the columns that are kept of the input; and the columns of ColumnsOf() (use/outputs.h). The name
// of a sample is its file for images, what the column --id holds for tables, and otherwise its number among the files'
// samples, from 0. With a sample submission the table is the submission's (use/submission.h). As an array it holds the
// outputs alone: float32 [samples, names], or for masks uint8 [samples, height, width]. The masks of images may also be
// a folder of PNG files (use/mask_files.h).
//
// what can fail -> what the caller sees -> the test that shows it (tests/predict_test.py)
//   options that do not go together, or with the run's data -> Error (kUsage)
//   a column that the input does not have, a sample submission that does not fit -> Error (kData)
//   the file cannot be written -> Error (kCheckpoint), before anything is predicted
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/output_target.h"
#include "config/schema/data.pb.h"
#include "data/dataset/dataset.h"
#include "use/mask_files.h"
#include "use/outputs.h"
#include "use/submission.h"

namespace lockstep {

struct PredictionRequest {
  std::vector<std::string> files;  // what is predicted
  bool held_back = false;          // whether that is what training held back, instead of files
  std::string output;              // the file to write, or for PNG files the folder
  // "csv", "jsonl", "npy" or "png"; empty: as the output's name ends (.jsonl, .npy, / for PNG files), otherwise CSV.
  std::string format{};
  bool probabilities = false;       // whether each class has a column
  std::string id{};                 // the column of the input that names samples; empty: none
  std::vector<std::string> keep{};  // columns of the input that the output has, too
  std::string submission{};         // a sample submission; empty: none
};

// Throws Error (kUsage) if the request does not say what is predicted.
void CheckSource(const PredictionRequest& request);

// Throws Error (kUsage) if the request makes no sense for a run with such data.
void CheckRequest(const PredictionRequest& request, const config::Data& data);

// Returns whether of each sample only the most probable class and its probability are written.
bool WritesBestOnly(const PredictionRequest& request, const config::Data& data);

// The samples whose predictions a file holds, in its order.
struct PredictedSamples {
  SampleSpec spec;
  std::vector<std::string> files;  // of each sample; empty: a file holds more than one sample
  std::vector<int64_t> numbers;    // of each sample, among all of the files
  // For each sample, the fold of a cross-validation that held it back; empty: there is only one run.
  std::vector<int64_t> folds{};

  int64_t size() const { return static_cast<int64_t>(numbers.size()); }
};

class PredictionFile {
 public:
  // Makes sure that the output can be written. Throws Error (kUsage, kCheckpoint).
  PredictionFile(PredictionRequest request, config::Data data);

  // Reads what names the samples, which are of the request's files. Throws Error (kData).
  void Prepare(PredictedSamples samples);

  // Writes what was predicted, the result of Predict() (use/predict.h). Prepare() was called before. Throws Error
  // (kCheckpoint).
  void Write(const at::Tensor& values);

  // Returns what a sample submission's columns hold, such as "Survived: label"; empty if there is none.
  std::string Contents() const { return submission_ ? submission_->Contents() : ""; }

 private:
  PredictionColumn NamesOfSamples() const;
  // Columns of the input, of the samples.
  std::vector<PredictionColumn> ReadColumns(const std::vector<std::string>& columns,
                                            std::string_view field) const;

  const PredictionRequest request_;
  const config::Data data_;
  std::optional<OutputTarget> target_;  // nothing: mask_files_ is there
  std::optional<MaskFiles> mask_files_;
  PredictedSamples samples_;
  Outputs outputs_;
  std::optional<Submission> submission_;
  std::vector<PredictionColumn> input_columns_;  // what the output has of the input
};

}  // namespace lockstep
