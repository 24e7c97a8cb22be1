#include "prepare/new/column_sketch.h"

#include <algorithm>
#include <cmath>

#include "data/tables/csv_date.h"

namespace lockstep {

void ColumnSketch::Add(std::string_view cell, int64_t line) {
  constexpr size_t kShownBytes = 40;
  if (IsMissing(cell)) {
    if (missing_++ == 0) first_missing_line_ = line;
    if (!IsMissingText(cell)) ++marks_[std::string(cell)];
    return;
  }
  NotePadding(cell);
  double number = 0;
  if (ParseNumber(cell, decimal_, number)) {
    AddNumber(number);
  } else {
    const bool is_truth = ParseTruth(cell, number);
    // A truth value is shown only if there are no other texts.
    const bool is_first = texts_ == (is_truth ? 0 : truths_);
    if (is_truth) {
      ++truths_;
      true_share_ += (number - true_share_) / static_cast<double>(truths_);
    }
    ++texts_;
    if (is_first) {
      first_text_line_ = line;
      first_text_ = cell.substr(0, kShownBytes);
    }
    text_bytes_ += static_cast<int64_t>(cell.size());
    if (const auto date = ParseDate(cell)) {
      ++dates_;
      has_times_ = has_times_ || date->has_time();
    }
  }
  AddValue(cell);
}

void ColumnSketch::AddNumber(double number) {
  counts_ = counts_ && (numbers_ == 0 || number == last_ + 1);
  last_ = number;
  least_ = numbers_ == 0 ? number : std::min(least_, number);
  greatest_ = numbers_ == 0 ? number : std::max(greatest_, number);
  ++numbers_;
  if (number == std::floor(number)) ++integers_;
  mean_ += (number - mean_) / static_cast<double>(numbers_);
}

void ColumnSketch::NotePadding(std::string_view cell) {
  if (!is_padded_) return;
  if (padded_digits_ == 0) padded_digits_ = cell.size();
  is_padded_ = cell.size() == padded_digits_ &&
               cell.find_first_not_of("0123456789") == std::string_view::npos;
  has_zero_ = has_zero_ || cell.starts_with('0');
}

void ColumnSketch::End() {
  const size_t spellings = values_.size();
  MergeSpellings(values_, {.given = decimal_});
  repeats_ = repeats_ || values_.size() < spellings;
}

ColumnSketch ColumnSketch::AsClasses() const {
  ColumnSketch classes = *this;
  for (const auto& [text, count] : marks_) {
    classes.missing_ -= count;
    classes.texts_ += count;
    if (!has_many_) classes.values_[text] += count;
  }
  return classes;
}

void ColumnSketch::AddValue(std::string_view cell) {
  if (has_many_) return;
  if (const auto known = values_.find(cell); known != values_.end()) {
    ++known->second;
    repeats_ = true;
  } else if (values_.size() < most_texts_) {
    values_.emplace(cell, 1);
  } else {
    has_many_ = true;
    values_.clear();
  }
}

}  // namespace lockstep
