// Finds out which texts of a table are spellings of one value: 1, 1.0 and 01; True and true.
//
// Promise: programs that write a table again change the spelling of its numbers. pandas, for example, writes the
// integers of a column as 1.0 as soon as one of its cells is empty, and true as True. A category, a class, a group of
// folds or an id is the same before and after this.
//   - If all texts of a column are numbers (data/tables/csv_number.h), and not of several currencies, texts with the
//     same number are one value. The numbers are compared digit by digit, so that integers of any length differ (ids).
//     Only fractions of more than 15 digits are compared as double, because programs print fewer of their digits. True
//     and false are 1 and 0.
//   - If all texts are true and false, in small or capital letters, true is one value, to which 1 belongs, and false
//     the other.
//   - In any other column a text is itself, except that an integer may end in .0: 007 and 7 may then be two names.
//   - Spaces and tabs around a text do not belong to it. Texts that stand for a missing value do not make a column one
//     of other texts.
//
// what can fail -> nothing; the tests are in data/tables/csv_spelling_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tables/csv_number.h"

namespace lockstep {

// Counts how many cells have each text.
using TextCounts = std::map<std::string, int64_t, std::less<>>;

// Compares the texts of one column by their values.
class ColumnKeys {
 public:
  // The texts of the column decide which of the rules above applies to it. `rule` is that of the column's file.
  ColumnKeys(const TextCounts& counts, const DecimalRule& rule);
  ColumnKeys(const std::vector<std::string>& texts, const DecimalRule& rule);

  // Returns a key that is the same for all spellings of a value. `text` need not be one of the column's. Of a text of
  // another file, `decimal` is the decimal sign of its column there.
  std::string operator()(std::string_view text,
                         std::optional<CsvDecimal> decimal = std::nullopt) const;

  CsvDecimal decimal() const { return decimal_; }  // the decimal sign of the column

 private:
  enum class Kind : uint8_t { kNumbers, kTruths, kOther };

  void Add(std::string_view text);
  void ChooseKind(const DecimalRule& rule);

  DecimalSigns signs_;
  CsvDecimal decimal_ = CsvDecimal::kPoint;
  Kind kind_ = Kind::kOther;
  int64_t texts_ = 0;   // the texts that do not stand for a missing value
  int64_t truths_ = 0;  // those of them that are true or false
};

// Returns `text` without an ending .0 (or .00 and so on) if the rest is an integer.
std::string_view WithoutZeroFraction(std::string_view text);

// Merges the texts of one column that are spellings of one value. The shortest spelling stays; among the shortest, the
// first in the order of their bytes.
void MergeSpellings(TextCounts& counts, const DecimalRule& rule);

// Replaces each of `texts`, the cells of one column, by the spelling that MergeSpellings() keeps.
void UnifySpellings(std::vector<std::string>& texts, const DecimalRule& rule);

// Finds the index of a text, or of another spelling of its value, in a list.
class TextIndex {
 public:
  // `texts` must stay as it is for as long as the object is used.
  TextIndex(const std::vector<std::string>& texts, const DecimalRule& rule);

  // FindSame() returns the index of `text` itself. Find() returns this index or else the index of the first text with
  // the same value. Both return -1 if there is no such text. Of a text of another file, `decimal` is the decimal sign
  // of its column there.
  int64_t FindSame(std::string_view text) const;
  int64_t Find(std::string_view text, std::optional<CsvDecimal> decimal = std::nullopt) const;

 private:
  ColumnKeys key_of_;
  std::unordered_map<std::string_view, int64_t> texts_;
  std::unordered_map<std::string, int64_t> keys_;
};

}  // namespace lockstep
