// Submission: predictions in the form of a competition's sample submission, such as Kaggle's sample_submission.csv.
//
// Promise: the written file has the header, the ids, the row order and the delimiter of the sample submission, and a
// prediction in every other cell, with the decimal sign that the cells of the column have there. If some id does not
// have exactly one prediction, nothing is written.
//
// The first column of the sample submission holds the ids. The content of each other column depends on the task and on
// the cells in the sample submission:
//   classes, one column       the class, if the cells are classes; if they are fractions (0.5 or 0,5), the
//                             probability of the second of two classes
//   classes, several columns  the probability of one class; a column's name is the class, or some beginning that ends
//                             in _ and then the class. If one beginning fits all columns, it decides; otherwise the
//                             longest class with which a column's name ends
//   labels                    0 or 1 if the cells are whole numbers, otherwise the probability; a column's name is the
//                             name of the label
//   regression                the predicted number; a column's name is the name of the target, unless there is only
//                             one target
// If labels or regression targets have no names, the columns are taken in their order.
//
// what can fail -> what the caller sees -> the test that shows it (tests/predict_test.py)
//   the sample submission has one column, no rows, an id twice, a class that the run does not know -> Error (kData)
//   its columns are not the run's classes or labels -> Error (kData) naming one
//   an id is not among the samples, or a sample is not in the sample submission -> Error (kData) naming it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tables/csv_number.h"
#include "data/tables/csv_texts.h"
#include "use/outputs.h"

namespace lockstep {

class Submission {
 public:
  // Reads the sample submission `path`, and finds what each of its columns must hold. `outputs.values` need not be set.
  // With `probabilities`, probabilities are written for classes and labels, whatever the sample submission holds.
  // `rule` is that of the run's tables. Throws Error (kData).
  Submission(std::string path, const Outputs& outputs, bool probabilities, const DecimalRule& rule);

  char delimiter() const { return sample_.delimiter; }

  // Returns the name of the first column of the sample submission.
  const std::string& id_name() const { return sample_.columns.front().name; }

  // Finds the predicted sample that belongs to each id of the sample submission. `ids` are the ids of the predicted
  // samples. If `are_files`, they are file paths, and an id of the submission may also be the file's name without its
  // folder, or without folder and extension. Throws Error (kData).
  void Match(const std::vector<std::string>& ids, bool are_files);

  // Returns the table to write. Match() must have been called before.
  PredictionTable Table(const Outputs& outputs) const;

  // Returns a description of the columns, such as "Survived: label".
  std::string Contents() const;

 private:
  enum class What : uint8_t { kLabel, kProbability, kYesOrNo, kNumber };
  struct Column {
    What what;
    int64_t index = 0;  // the index of the class, label or regression target
  };

  Column OnlyClassColumn(const Outputs& outputs, bool probabilities);
  // Returns the index of the class, label or regression target of each column after the first.
  std::vector<int64_t> IndicesOf(const Outputs& outputs) const;
  int64_t IndexOf(size_t i, const Outputs& outputs) const;
  const std::vector<std::string>& TextsOf(size_t i) const { return sample_.columns[i].texts; }
  // Returns whether a cell of column `i` is written with a decimal sign, such as 0.5 or 0.0.
  bool HoldsFractions(size_t i) const;

  std::string path_;
  DecimalRule rule_;
  CsvTextTable sample_;
  std::vector<CsvDecimal> decimals_;  // of each column of sample_
  std::vector<Column> columns_;       // the columns of sample_ after the first
  std::vector<int64_t> rows_;         // for each id, the index of the predicted sample
  // The names of the classes as the sample submission spells them (1 where the run has 1.0); empty: as the run has
  // them.
  std::vector<std::string> class_names_;
};

}  // namespace lockstep
