// Submission: predictions in the form of a competition's sample file, such as Kaggle's sample_submission.csv.
//
// Promise: the file that is written has the sample's header, ids and order, and a prediction in each other cell. Each
// id of the sample is predicted exactly once, or nothing is written.
//
// The sample's first column holds the ids. The content of each other column follows from the task and from what the
// sample has there:
//   one column, classes    the class, if the sample holds classes; if it holds fractions (0.5), the probability of the
//                          second of two classes
//   several, classes       the probability of each class; a column's name is a class, or ends in _ and a class
//   labels                 0 or 1 if the sample holds whole numbers, otherwise the probability; a column's name is the
//                          label's
//   numbers                the number; a column's name is the label's, unless there is only one
// Columns of labels and numbers without names are taken in their order.
//
// what can fail -> what the caller sees -> the test that shows it (tests/predict_test.py)
//   the sample has one column, no rows, an id twice, a class that the run does not know -> Error (kData)
//   its columns are not the run's classes or labels -> Error (kData) naming one
//   an id is not among the samples, or a sample is not in the file -> Error (kData) naming it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tables/csv_texts.h"
#include "use/outputs.h"

namespace lockstep {

class Submission {
 public:
  // `path` is the sample file. `outputs` needs no values. With `probabilities` classes and labels are given by their
  // probabilities, whatever the sample holds. Throws Error (kData).
  Submission(std::string path, const Outputs& outputs, bool probabilities);

  // The name of the sample's first column.
  const std::string& id_name() const { return sample_.front().name; }

  // Finds the sample of each id. `ids` are the samples' ids; for files, an id may also be the file's name without its
  // folder, or without its ending, too. Throws Error (kData).
  void Match(const std::vector<std::string>& ids, bool are_files);

  // Returns what is to be written. Match() was called before.
  PredictionTable Table(const Outputs& outputs) const;

  // Returns what the columns hold, such as "Survived: label".
  std::string Contents() const;

 private:
  enum class What : uint8_t { kLabel, kProbability, kYesOrNo, kNumber };
  struct Column {
    What what;
    int64_t index = 0;  // of the class, label or number
  };

  Column OnlyClassColumn(const Outputs& outputs, bool probabilities) const;
  // The class, label or number of column `i`.
  int64_t IndexOf(size_t i, const Outputs& outputs) const;
  // Whether a cell of column `i` is a number with a fraction, as 0.5 and 0.0 are.
  bool HoldsFractions(size_t i) const;

  std::string path_;
  std::vector<CsvTextColumn> sample_;
  std::vector<Column> columns_;  // of sample_ without the first
  std::vector<int64_t> rows_;    // the sample of each id
};

}  // namespace lockstep
