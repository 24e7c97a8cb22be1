// Reads numbers as people, spreadsheets and programs write them, and knows the texts that stand for a missing value.
//
// Promise: a number is read in the same way by training, predictions and `lockstep new`. These spellings of a number
// are read, also together ("-$1,281.50"):
//   1281.5, +1281.5, 1.2815e3     as in C, with spaces around it
//   1,281.5   12,81,000   1 281.5   1'281.5      groups of three digits (in India: three, then two), if the decimal
//                                                sign is a point
//   1281,5    1.281,5     1 281,5                the same, if the decimal sign is a comma
//   5.1%                                         0.051, which is also the number that a spreadsheet keeps for it
//   $602.52   602,52 €   US$5   EUR 5            the number without the currency
//   (5.1)     −5.1                               -5.1: brackets in accounts, and the minus sign of Unicode
//
// "1,281" alone may be 1281 or 1.281. So one decimal sign holds for a whole column, and DecimalSigns finds it from the
// column's cells. A number with an exponent has no groups, so 1.281e0 is 1.281 whatever the decimal sign is: a data
// frame's numbers are written so.
//
// what can fail -> what the caller sees -> the test that shows it (data/tables/csv_number_test.cc)
//   a text is no number, or is beyond a float's range -> false -> CsvNumber.RefusesWhatIsNoNumber
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The decimal sign of the numbers of a column.
enum class CsvDecimal : uint8_t {
  kPoint,
  kComma,  // a point is also read as a decimal sign, because a data frame's numbers have one
  kCommaAndPoints,  // as kComma, but a point before each group of three digits separates groups: 1.281 is 1281
};

struct PlainNumber {
  std::string text;  // the number as from_chars() reads it
  // Whether the text has groups, a comma, a percent sign, a currency, brackets or Unicode's minus sign.
  bool is_formatted = false;
  std::string currency{};  // as it is written: "$"; empty: none
};

// Returns the number that `text` holds, or nullopt if `text` holds no number.
std::optional<PlainNumber> FindNumber(std::string_view text, CsvDecimal decimal);

// Parses the whole of `text` as a number in C's spelling, and writes it to `number`. Returns false if `text` is no
// number of the type `Number`.
template <typename Number>
bool ParseWhole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Parses `text`, writes its number to `number`, and returns whether `text` is a number in the range of a float. A
// number that is too close to 0 for a float is accepted, but a number that is too close to 0 even for a long double
// (1e-5000) is refused as a mistake.
template <typename Number>
bool ParseNumber(std::string_view text, CsvDecimal decimal, Number& number) {
  constexpr auto kGreatest = std::numeric_limits<float>::max();
  const bool may_have_groups =
      decimal == CsvDecimal::kCommaAndPoints && text.find('.') != text.npos;
  if (!may_have_groups && ParseWhole(text, number)) return std::abs(number) <= kGreatest;
  const std::optional<PlainNumber> plain = FindNumber(text, decimal);
  if (!plain) return false;
  if (ParseWhole(plain->text, number)) return std::abs(number) <= kGreatest;
  // from_chars() refuses numbers that are too close to 0 for the type `Number`.
  long double wide = 0;
  if (!ParseWhole(plain->text, wide)) return false;
  number = static_cast<Number>(wide);
  return std::abs(wide) <= kGreatest;
}

// Returns the truth value if `text` is true or false, in small or capital letters; otherwise nullopt.
std::optional<bool> TruthOf(std::string_view text);

// Parses true as 1 and false as 0. Returns false if `text` is neither.
template <typename Number>
bool ParseTruth(std::string_view text, Number& number) {
  const std::optional<bool> truth = TruthOf(text);
  if (truth) number = *truth ? 1 : 0;
  return truth.has_value();
}

// Returns whether `text` is a number with one of the decimal signs.
bool IsAnyNumber(std::string_view text);

// Returns whether `text` is a number that is written with a decimal sign, such as 0.5 or 0.0.
bool HasFraction(std::string_view text, CsvDecimal decimal);

// Returns whether a file's text may hold a number that is not in C's spelling. Costs much less than to read the cells.
bool MayHaveFormattedNumbers(std::string_view file_text, char delimiter);

// Finds the decimal sign of a column from its cells.
class DecimalSigns {
 public:
  void Add(std::string_view cell);

  // Returns the decimal sign. The cells decide if they can: "0,125" and "1234,5" have a decimal comma, and "1,281.5"
  // has a decimal point. In a column with decimal commas, points separate groups if each of them may ("1.281"). If each
  // comma may be either ("1,281"), a column that also has integers without a comma ("950") has groups. Any other such
  // column has a decimal comma if the delimiter is a semicolon, as in the files of a spreadsheet whose language has a
  // decimal comma, and groups otherwise.
  CsvDecimal Found(char delimiter) const;

  // Returns whether the cells are numbers of which some have a decimal comma, or a decimal point, and none could be
  // written with the other sign.
  bool has_comma() const { return others_ == 0 && commas_ + point_groups_ > 0 && groups_ == 0; }
  bool has_point() const { return others_ == 0 && points_ + groups_ > 0 && commas_ == 0; }
  // Returns whether the cells leave the sign open: 1,281 or 1.281.
  bool is_open() const {
    return commas_ + points_ + groups_ + point_groups_ == 0 &&
           (either_ > 0 || !point_example_.empty());
  }
  // Returns whether each number of the column can be meant with this sign.
  bool Fits(CsvDecimal decimal) const {
    if (decimal == CsvDecimal::kPoint) return commas_ + point_groups_ == 0;
    return groups_ == 0 && (decimal == CsvDecimal::kComma ? point_groups_ : points_) == 0;
  }
  // Returns the sign of a column that is open, in a file whose other columns have a decimal comma.
  CsvDecimal AsComma() const {
    return point_example_.empty() ? CsvDecimal::kComma : CsvDecimal::kCommaAndPoints;
  }

  // Returns whether each comma may be a decimal sign or separate groups.
  bool may_be_either() const {
    return either_ > 0 && commas_ + points_ + groups_ + point_groups_ == 0;
  }

  int64_t numbers() const { return numbers_; }
  int64_t others() const { return others_; }      // cells that are neither numbers nor missing
  int64_t percents() const { return percents_; }  // how many numbers have a percent sign
  // The first spelling of each currency: {"$", "€"}. US$ and USD are the currency of $.
  const std::vector<std::string>& currencies() const { return currencies_; }

  // Returns the first cell whose number is formatted (PlainNumber::is_formatted) or, if there is none and points
  // separate groups, the first cell that may have groups ("1.281"). Returns an empty text if there is no such cell.
  const std::string& Example(CsvDecimal decimal) const;

 private:
  void AddCurrency(const std::string& currency);

  int64_t numbers_ = 0;
  int64_t percents_ = 0;
  int64_t others_ = 0;
  int64_t integers_ = 0;  // cells of digits alone
  int64_t commas_ = 0;    // cells whose comma can only be a decimal sign
  // Cells whose point can only be a decimal sign, and which have no comma, and no exponent as a data frame's numbers.
  int64_t points_ = 0;
  int64_t groups_ = 0;        // cells whose commas can only separate groups
  int64_t either_ = 0;        // cells whose comma may be either
  int64_t point_groups_ = 0;  // cells whose points can only separate groups
  std::vector<std::string> currencies_;
  std::string example_;        // the first cell whose number is formatted
  std::string point_example_;  // the first cell that has a point where groups may be separated
};

// Says how the decimal sign of a column is found: it is `given` by the user, or else found from the cells of a file
// with the delimiter `delimiter`.
struct DecimalRule {
  char delimiter = ',';
  std::optional<CsvDecimal> given{};

  CsvDecimal For(const DecimalSigns& signs) const {
    return given ? *given : signs.Found(delimiter);
  }
  // Returns the sign of each column of a file. If the cells of a column leave it open (1.281), the other columns
  // decide, if all that decide have the same sign: a file has one.
  std::vector<CsvDecimal> ForAll(const std::vector<DecimalSigns>& columns) const;
};

// HowRead() returns words that tell how the formatted numbers of a column with the sign `decimal` are read, such as
// `"1,5" is read as 1.5`, with `aside` behind the number; an empty text if there are none. The words also tell if only
// some of the numbers have a percent sign, and if there are several currencies. HowElse() returns an aside if the sign
// is open: what data.csv.decimal would change.
std::string HowRead(const DecimalSigns& signs, CsvDecimal decimal, const std::string& aside);
std::string HowElse(const DecimalSigns& signs, CsvDecimal decimal);

// IsMissing() returns whether `text` stands for a missing value: it is empty, or one of the texts that pandas reads as
// missing (NA, N/A, NaN, null, None, <NA> and others, in small or capital letters), or NaT, or \N of databases.
// IsMissingText() is for labels, and for the categories of a config that does not replace missing values: it accepts
// only an empty text, NA, NaN and null, because a class may be named None.
bool IsMissing(std::string_view text);
bool IsMissingText(std::string_view text);

}  // namespace lockstep
