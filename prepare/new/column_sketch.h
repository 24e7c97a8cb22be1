// ColumnSketch: statistics of a table's column from one pass, in memory that does not grow with the number of rows.
//
// Promise: counts, the mean, the least and the greatest number take all cells into account, and not only a sample of
// them. A cell is missing if IsMissing() accepts it, a number if ParseNumber() does, and otherwise a text; training
// uses these functions, too (data/tables/csv_number.h). A text may be a date (data/tables/csv_date.h).
//
// Invariants:
//   1. At most `most_texts` different cells are kept. When one more occurs, the sketch drops all of them, and
//      has_many_texts() is true from then on. repeats() then says only whether a cell occurred twice before that.
//
// what can fail -> nothing; the tests are in prepare/new/new_test.cc, ColumnSketch.*
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/tables/csv_number.h"
#include "data/tables/csv_spelling.h"

namespace lockstep {

class ColumnSketch {
 public:
  explicit ColumnSketch(size_t most_texts, CsvDecimal decimal = CsvDecimal::kPoint)
      : most_texts_(most_texts), decimal_(decimal) {}

  CsvDecimal decimal() const { return decimal_; }

  // Adds the next cell, which lies in line `line` of the file.
  void Add(std::string_view cell, int64_t line);

  // Merges the spellings of each value (data/tables/csv_spelling.h). To be called after the last cell was added.
  void End();

  // Returns the sketch of the same cells as labels of texts, among which N/A and None are no missing values but
  // classes.
  ColumnSketch AsClasses() const;

  int64_t rows() const { return missing_ + numbers_ + texts_; }
  int64_t missing() const { return missing_; }
  int64_t numbers() const { return numbers_; }
  // Returns the number of cells that are neither missing nor a number. Among numbers, true and false are numbers, too.
  int64_t texts() const { return numbers_ > 0 ? texts_ - truths_ : texts_; }
  // holds_dates() returns whether all cells that are not missing are dates. has_times() returns whether one of the
  // dates has a time of day. holds_truths() returns whether all cells that are not missing are true or false.
  bool holds_dates() const { return dates_ == present(); }
  bool has_times() const { return has_times_; }
  bool holds_truths() const { return truths_ > 0 && truths_ == present(); }
  int64_t present() const { return numbers_ + texts_; }

  int64_t first_missing_line() const { return first_missing_line_; }
  int64_t first_text_line() const { return first_text_line_; }
  // Returns the first 40 bytes of the first cell that is a text.
  const std::string& first_text() const { return first_text_; }
  // Returns the mean number of bytes of a text.
  int64_t text_bytes() const { return texts_ == 0 ? 0 : text_bytes_ / texts_; }

  // Returns whether there are numbers, and all of them are integers.
  bool holds_integers() const { return numbers_ > 0 && integers_ == numbers_; }
  // Returns the mean of the numbers, or of true (1) and false (0) if holds_truths().
  double mean() const { return holds_truths() ? true_share_ : mean_; }
  double least() const { return least_; }
  double greatest() const { return greatest_; }
  // Returns whether all cells are integers, and each cell is the previous cell plus 1.
  bool counts_rows() const { return counts_ && holds_integers() && missing_ + texts_ == 0; }
  // Returns whether all cells that are not missing are digits of one number, and one of them begins with a zero, as
  // postal codes do: 01234, 90210.
  bool holds_padded_integers() const { return is_padded_ && padded_digits_ > 1 && has_zero_; }

  // Returns the different cells that are not missing, each with its number of occurrences; empty if there are too many.
  const TextCounts& values() const { return values_; }
  bool has_many_texts() const { return has_many_; }
  bool repeats() const { return repeats_; }

 private:
  void AddNumber(double number);
  void NotePadding(std::string_view cell);
  void AddValue(std::string_view cell);

  size_t most_texts_;
  CsvDecimal decimal_;
  int64_t missing_ = 0;
  int64_t numbers_ = 0;
  int64_t integers_ = 0;
  int64_t texts_ = 0;
  int64_t dates_ = 0;
  int64_t truths_ = 0;
  bool has_times_ = false;
  int64_t text_bytes_ = 0;
  int64_t first_missing_line_ = 0;
  int64_t first_text_line_ = 0;
  std::string first_text_;
  double mean_ = 0;
  double true_share_ = 0;
  double least_ = 0;
  double greatest_ = 0;
  double last_ = 0;
  bool counts_ = true;
  bool is_padded_ = true;  // whether all cells are padded_digits_ digits
  bool has_zero_ = false;  // whether one of them begins with a zero
  size_t padded_digits_ = 0;
  bool has_many_ = false;
  bool repeats_ = false;
  TextCounts values_;
  TextCounts marks_;  // cells such as N/A and None, which are missing values but may be classes
};

}  // namespace lockstep
