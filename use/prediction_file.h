// PredictionFile: the file that `lockstep predict` writes, with its columns and its format.
//
// Promise: every error in the request, the ids and the sample submission is reported before anything is predicted.
//
// The file is a table with one row for each sample, in the order of the input files. Its columns are the sample's name;
// its fold, if several folds held samples back; the columns of the input that --keep names; and the columns of
// ColumnsOf() (use/outputs.h). The name of a sample is its file's path for images, the cell of the column --id for
// tables, and otherwise its index among all samples of the files, from 0. With a sample submission the table has the
// columns and rows of the submission (use/submission.h). An array file (.npy) holds only the outputs: float32 [samples,
// names], or for masks uint8 [samples, height, width]. Masks may also be written as a folder of PNG files
// (use/mask_files.h).
//
// what can fail -> what the caller sees -> the test that shows it (tests/predict_test.py)
//   options that contradict each other or the run's data -> Error (kUsage)
//   the output is an input, a file of the training data or of a run -> Error (kUsage) -> tests/outputs_test.py
//   a column that the input does not have, a sample submission that does not match the samples -> Error (kData)
//   the file cannot be written -> Error (kCheckpoint), before anything is predicted
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/files/kept_files.h"
#include "base/files/output_target.h"
#include "config/schema/config.pb.h"
#include "data/dataset/dataset.h"
#include "use/mask_files.h"
#include "use/outputs.h"
#include "use/submission.h"

namespace lockstep {

struct PredictionRequest {
  std::vector<std::string> files;  // the files to predict
  bool held_back = false;  // whether to predict the samples that training held back, not files
  std::string output;      // the file to write; for PNG files, the folder
  // "csv", "jsonl", "npy" or "png"; empty: the end of `output` decides. The ends .jsonl and .npy stand for these
  // formats, a slash stands for PNG files, and any other end for CSV.
  std::string format{};
  bool probabilities = false;       // whether to write a column for each class
  std::string id{};                 // the input column with the samples' names; empty: none
  std::vector<std::string> keep{};  // input columns to copy to the output
  std::string submission{};         // the path of a sample submission; empty: none
};

// Checks that the request names either files or the held-back samples. Throws Error (kUsage) if it does not.
void CheckSource(const PredictionRequest& request);

// Checks that the request is possible for a run with this data. Throws Error (kUsage) if it is not.
void CheckRequest(const PredictionRequest& request, const config::Data& data);

// Returns whether only the most probable class and its probability are written for each sample.
bool WritesBestOnly(const PredictionRequest& request, const config::Data& data);

// The samples whose predictions are written, in the order of the output.
struct PredictedSamples {
  SampleSpec spec;
  std::vector<std::string> files;  // the file of each sample; empty: files hold several samples
  std::vector<int64_t> numbers;    // the index of each sample among the samples of all files
  // The fold of a cross-validation that held each sample back; empty: there is only one run.
  std::vector<int64_t> folds{};

  int64_t size() const { return static_cast<int64_t>(numbers.size()); }
};

class PredictionFile {
 public:
  // Checks that the output can be written. `config` is the config of the run, and `kept` has the files of the runs that
  // predict. Throws Error (kUsage, kCheckpoint).
  PredictionFile(PredictionRequest request, config::Config config, KeptFiles kept);

  // Reads from the request's files the names of `samples` and the columns to keep. Throws Error (kData).
  void Prepare(PredictedSamples samples);

  // Writes the predictions `values`, which Predict() returned (use/predict.h). Prepare() must have been called before.
  // Throws Error (kCheckpoint).
  void Write(const at::Tensor& values);

  // Returns a description of the submission's columns, such as "Survived: label"; empty if there is no submission.
  std::string Contents() const { return submission_ ? submission_->Contents() : ""; }

 private:
  const config::Data& data() const { return config_.data(); }
  PredictionColumn NamesOfSamples() const;
  // Reads columns of the input for the samples to predict. `field` is the option that names the columns, for errors.
  std::vector<PredictionColumn> ReadColumns(const std::vector<std::string>& columns,
                                            std::string_view field) const;

  const PredictionRequest request_;
  const config::Config config_;
  std::optional<OutputTarget> target_;  // empty: mask_files_ is set
  std::optional<MaskFiles> mask_files_;
  PredictedSamples samples_;
  Outputs outputs_;
  std::optional<Submission> submission_;
  std::vector<PredictionColumn> input_columns_;  // sample names, folds and kept input columns
};

}  // namespace lockstep
