#include "data/tables/csv_number.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/small_letters.h"

namespace lockstep {
namespace {

// The space, the tab, and the no-break spaces and the thin space of Unicode, which separate groups in many languages.
constexpr std::array<std::string_view, 5> kSpaces{" ", "\t", "\u00A0", "\u202F", "\u2009"};
constexpr std::string_view kMinus = "\u2212";
constexpr std::string_view kDollar = "$";

// A currency as it is written, and its code.
struct Currency {
  std::string_view text;
  std::string_view code;
};
constexpr std::array<Currency, 31> kCurrencies{
    {{"€", "EUR"},   {"£", "GBP"},   {"¥", "JPY"},   {"₹", "INR"},   {"₩", "KRW"},   {"₽", "RUB"},
     {"₺", "TRY"},   {"₪", "ILS"},   {"₫", "VND"},   {"฿", "THB"},   {"₴", "UAH"},   {"₦", "NGN"},
     {"₱", "PHP"},   {"zł", "PLN"},  {"kr", "kr"},   {"USD", "USD"}, {"EUR", "EUR"}, {"GBP", "GBP"},
     {"JPY", "JPY"}, {"CNY", "CNY"}, {"CHF", "CHF"}, {"AUD", "AUD"}, {"CAD", "CAD"}, {"NZD", "NZD"},
     {"HKD", "HKD"}, {"SEK", "SEK"}, {"NOK", "NOK"}, {"DKK", "DKK"}, {"PLN", "PLN"}, {"INR", "INR"},
     {"BRL", "BRL"}}};
// The letters before a dollar sign.
constexpr std::array<Currency, 9> kDollars{{{"", "USD"},
                                            {"US", "USD"},
                                            {"A", "AUD"},
                                            {"AU", "AUD"},
                                            {"C", "CAD"},
                                            {"CA", "CAD"},
                                            {"NZ", "NZD"},
                                            {"HK", "HKD"},
                                            {"R", "BRL"}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsCapital(char c) { return c >= 'A' && c <= 'Z'; }

// Removes `beginning` from the beginning of `text`. Returns false if `text` does not begin so.
bool TakeFirst(std::string_view& text, std::string_view beginning) {
  if (beginning.empty() || !text.starts_with(beginning)) return false;
  text.remove_prefix(beginning.size());
  return true;
}

bool TakeLast(std::string_view& text, std::string_view ending) {
  if (ending.empty() || !text.ends_with(ending)) return false;
  text.remove_suffix(ending.size());
  return true;
}

template <typename Texts>
bool TakeFirstOf(std::string_view& text, const Texts& beginnings) {
  return std::ranges::any_of(beginnings,
                             [&](auto beginning) { return TakeFirst(text, beginning); });
}

template <typename Texts>
bool TakeLastOf(std::string_view& text, const Texts& endings) {
  return std::ranges::any_of(endings, [&](auto ending) { return TakeLast(text, ending); });
}

std::string_view Trimmed(std::string_view text) {
  while (TakeFirstOf(text, kSpaces)) {
  }
  while (TakeLastOf(text, kSpaces)) {
  }
  return text;
}

// Removes a currency from the beginning of `text`: a symbol, a code, or up to three capital letters and a dollar (US$).
// Returns the currency as it is written; empty if there is none.
std::string_view TakeCurrency(std::string_view& text) {
  for (const Currency& currency : kCurrencies) {
    if (TakeFirst(text, currency.text)) return currency.text;
  }
  const size_t letters = std::ranges::find_if_not(text, IsCapital) - text.begin();
  constexpr size_t kMostLetters = 3;
  if (letters > kMostLetters || !text.substr(letters).starts_with(kDollar)) return {};
  const std::string_view currency = text.substr(0, letters + kDollar.size());
  text.remove_prefix(currency.size());
  return currency;
}

// As TakeCurrency(), at the end of `text`.
std::string_view TakeCurrencyAtEnd(std::string_view& text) {
  if (TakeLast(text, kDollar)) return kDollar;
  for (const Currency& currency : kCurrencies) {
    if (TakeLast(text, currency.text)) return currency.text;
  }
  return {};
}

// Returns the code of a currency, which is the same for each of its spellings.
std::string_view CodeOf(std::string_view currency) {
  if (const auto known = std::ranges::find(kCurrencies, currency, &Currency::text);
      known != kCurrencies.end()) {
    return known->code;
  }
  std::string_view letters = currency;
  TakeLast(letters, kDollar);
  const auto known = std::ranges::find(kDollars, letters, &Currency::text);
  return known == kDollars.end() ? currency : known->code;
}

// Reads the digits of a number, without sign, currency and percent sign.
class Digits {
 public:
  Digits(std::string_view text, CsvDecimal decimal) : text_(text), decimal_(decimal) {}

  // Appends the number in C's spelling to `plain`. Returns false if the text is no number.
  bool Read(std::string& plain) {
    const size_t begin = plain.size();
    size_t digits = Append(plain);
    if (digits > 0 && plain[begin] != '0') SkipGroups(digits, plain);
    if (TakeDecimalSign()) {
      plain += '.';
      digits += Append(plain);
    }
    if (digits == 0) return false;
    if (TakeFirst(text_, "e") || TakeFirst(text_, "E")) {
      has_exponent_ = true;
      plain += 'e';
      if (TakeFirst(text_, "-")) {
        plain += '-';
      } else {
        TakeFirst(text_, "+");
      }
      if (Append(plain) == 0) return false;
    }
    return text_.empty();
  }

  bool is_formatted() const { return is_formatted_; }
  bool has_exponent() const { return has_exponent_; }

 private:
  // Moves the digits at the beginning of the text to `plain`, and returns their number.
  size_t Append(std::string& plain) {
    const size_t digits = std::ranges::find_if_not(text_, IsDigit) - text_.begin();
    plain += text_.substr(0, digits);
    text_.remove_prefix(digits);
    return digits;
  }

  bool TakeDecimalSign() {
    if (decimal_ == CsvDecimal::kPoint) return TakeFirst(text_, ".");
    if (TakeFirst(text_, ".")) return true;
    const bool is_comma = TakeFirst(text_, ",");
    is_formatted_ = is_formatted_ || is_comma;
    return is_comma;
  }

  // Returns the text between two groups of digits that `rest` begins with; empty if it begins with no such text.
  std::string_view SeparatorIn(std::string_view rest) const {
    constexpr std::array<std::string_view, 2> kApostrophes{"'", "\u2019"};
    const std::string_view sign = decimal_ == CsvDecimal::kPoint            ? ","
                                  : decimal_ == CsvDecimal::kCommaAndPoints ? "."
                                                                            : "";
    if (!sign.empty() && rest.starts_with(sign)) return sign;
    for (const auto& texts : {std::span<const std::string_view>(kSpaces),
                              std::span<const std::string_view>(kApostrophes)}) {
      for (const std::string_view text : texts) {
        if (rest.starts_with(text)) return text;
      }
    }
    return {};
  }

  // Moves the further groups of digits to `plain`, if the text goes on with such groups. `first` is the number of
  // digits of the first group.
  void SkipGroups(size_t first, std::string& plain) {
    constexpr size_t kThree = 3;
    const std::string_view separator = SeparatorIn(text_);
    if (separator.empty() || first > kThree) return;
    std::string_view rest = text_;
    std::string groups;
    size_t last = 0;
    bool all_three = true;  // whether the groups between the first and the last have three digits
    bool all_two = separator == "," && first <= 2;  // the same for two digits
    while (TakeFirst(rest, separator)) {
      if (last > 0) all_three = all_three && last == kThree, all_two = all_two && last == 2;
      last = std::ranges::find_if_not(rest, IsDigit) - rest.begin();
      groups += rest.substr(0, last);
      rest.remove_prefix(last);
      if (last == 0) return;
    }
    if (last != kThree || !(all_three || all_two)) return;
    if (rest.starts_with('e') || rest.starts_with('E')) return;
    plain += groups;
    text_ = rest;
    is_formatted_ = true;
  }

  std::string_view text_;
  CsvDecimal decimal_;
  bool is_formatted_ = false;
  bool has_exponent_ = false;
};

// Returns whether FindNumber() finds a number.
bool IsNumber(std::string_view text, CsvDecimal decimal) {
  return FindNumber(text, decimal).has_value();
}

// Returns the beginning of `text` in small letters. It is longer than the longest word that is looked for if `text` is.
constexpr size_t kLongest = 8;
std::string ShortWord(std::string_view text) {
  return InSmallLetters(text.substr(0, kLongest + 1));
}

}  // namespace

std::optional<PlainNumber> FindNumber(std::string_view text, CsvDecimal decimal) {
  text = Trimmed(text);
  if (text.empty()) return std::nullopt;
  PlainNumber number;
  bool is_negative = text.starts_with('(') && text.ends_with(')');
  bool has_sign = is_negative;
  if (is_negative) {
    text = Trimmed(text.substr(1, text.size() - 2));
    number.is_formatted = true;
  }
  const auto take_sign = [&] {
    const bool is_minus = !has_sign && TakeFirst(text, kMinus);
    const bool is_hyphen = !has_sign && !is_minus && TakeFirst(text, "-");
    is_negative = is_negative || is_minus || is_hyphen;
    number.is_formatted = number.is_formatted || is_minus;
    has_sign = has_sign || is_minus || is_hyphen || TakeFirst(text, "+");
    text = Trimmed(text);
  };
  take_sign();
  number.currency = TakeCurrency(text);
  if (!number.currency.empty()) {
    text = Trimmed(text);
    if (!has_sign) take_sign();
  }
  const bool is_percent = TakeLast(text, "%");
  if (!is_percent && number.currency.empty()) number.currency = TakeCurrencyAtEnd(text);
  if (is_percent || !number.currency.empty()) {
    text = Trimmed(text);
    number.is_formatted = true;
  }
  if (is_negative) number.text = '-';
  Digits digits(text, decimal);
  if (!digits.Read(number.text) || (is_percent && digits.has_exponent())) return std::nullopt;
  if (is_percent) number.text += "e-2";
  number.is_formatted = number.is_formatted || digits.is_formatted();
  return number;
}

bool IsAnyNumber(std::string_view text) {
  return FindNumber(text, CsvDecimal::kPoint) || FindNumber(text, CsvDecimal::kCommaAndPoints);
}

bool HasFraction(std::string_view text, CsvDecimal decimal) {
  const std::optional<PlainNumber> number = FindNumber(text, decimal);
  return number && number->text.find('.') != std::string::npos;
}

std::optional<bool> TruthOf(std::string_view text) {
  const std::string word = ShortWord(Trimmed(text));
  if (word == "true") return true;
  if (word == "false") return false;
  return std::nullopt;
}

bool MayHaveFormattedNumbers(std::string_view file_text, char delimiter) {
  // The text is looked at from place to place without branches, which the compiler turns into vector instructions. The
  // text around a place is at[-1] to at[kAhead].
  constexpr size_t kAhead = 4;
  const auto delimiter_byte = static_cast<uint8_t>(delimiter);
  // With another delimiter a comma may be part of a number; with a comma as the delimiter, only in quotes.
  const uint8_t comma = delimiter == ',' ? '"' : ',';
  const auto is_digit = [](uint8_t c) -> uint8_t { return static_cast<uint8_t>(c - '0') < 10; };
  const auto is_formatted = [&](const uint8_t* at) -> uint8_t {
    const uint8_t c = *at;
    const bool is_sign =
        (c >= 0x80) | (c == '%') | (c == '$') | (c == '\'') | (c == '(') | (c == comma);
    const bool may_separate = (c == ' ') | (static_cast<uint8_t>(c - 'A') < 26);
    const uint8_t is_beside_digit = may_separate & (is_digit(at[-1]) | is_digit(at[1]));
    const uint8_t is_group = is_digit(at[1]) & is_digit(at[3]) & (c == '.') & (at[kAhead] == '.');
    return (is_sign | is_beside_digit | is_group) & (c != delimiter_byte);
  };
  constexpr size_t kBlock = 4096;
  std::array<uint8_t, 1 + kBlock + kAhead> last{};  // the last places, with zeros around them
  const auto* text = reinterpret_cast<const uint8_t*>(file_text.data());
  for (size_t begin = 0; begin < file_text.size(); begin += kBlock) {
    const uint8_t* at = text + begin;
    const size_t places = std::min(kBlock, file_text.size() - begin);
    if (begin == 0 || begin + places + kAhead > file_text.size()) {
      last[0] = begin == 0 ? 0 : at[-1];
      const size_t bytes = std::min(places + kAhead, file_text.size() - begin);
      std::fill(std::copy_n(at, bytes, last.begin() + 1), last.end(), 0);
      at = last.data() + 1;
    }
    uint8_t found = 0;
    for (size_t i = 0; i < places; ++i) found |= is_formatted(at + i);
    if (found != 0) return true;
  }
  return false;
}

void DecimalSigns::Add(std::string_view cell) {
  constexpr auto kPoint = CsvDecimal::kPoint;
  constexpr auto kComma = CsvDecimal::kComma;
  constexpr auto kCommaAndPoints = CsvDecimal::kCommaAndPoints;
  double whole = 0;
  if (cell.find('.') == cell.npos && ParseWhole(cell, whole)) {
    ++numbers_;
    ++integers_;
    return;
  }
  const std::optional<PlainNumber> with_point = FindNumber(cell, kPoint);
  const std::optional<PlainNumber> with_groups = FindNumber(cell, kCommaAndPoints);
  const bool with_comma = IsNumber(cell, kComma);
  if (!with_point && !with_comma && !with_groups) {
    if (!IsMissing(cell) && !TruthOf(cell)) ++others_;
    return;
  }
  ++numbers_;
  if (cell.find('%') != cell.npos) ++percents_;
  const bool is_formatted = !with_point || with_point->is_formatted;
  if (is_formatted && example_.empty()) example_ = cell;
  if (const auto& number = with_point ? with_point : with_groups) AddCurrency(number->currency);
  if (cell.find(',') == cell.npos) {
    if (!with_point) {
      ++point_groups_;  // 1.281.000
    } else if (cell.find('.') == cell.npos) {
      ++integers_;
    } else if (with_groups->text != with_point->text) {
      if (point_example_.empty()) point_example_ = cell;
    } else if (with_point->text.find('e') == std::string::npos) {
      ++points_;
    }
  } else if (!with_point) {
    ++(with_comma ? commas_ : point_groups_);
  } else {
    ++(with_groups ? either_ : groups_);
  }
}

void DecimalSigns::AddCurrency(const std::string& currency) {
  constexpr size_t kMostCurrencies = 8;
  const auto is_same = [&](const std::string& known) { return CodeOf(known) == CodeOf(currency); };
  if (currency.empty() || currencies_.size() == kMostCurrencies) return;
  if (std::ranges::none_of(currencies_, is_same)) currencies_.push_back(currency);
}

CsvDecimal DecimalSigns::Found(char delimiter) const {
  if (commas_ + point_groups_ > groups_) {
    const bool has_groups = point_groups_ > 0 || (!point_example_.empty() && points_ == 0);
    return has_groups ? CsvDecimal::kCommaAndPoints : CsvDecimal::kComma;
  }
  const bool is_undecided = may_be_either() && integers_ == 0 && point_example_.empty();
  return is_undecided && delimiter == ';' ? CsvDecimal::kComma : CsvDecimal::kPoint;
}

const std::string& DecimalSigns::Example(CsvDecimal decimal) const {
  // A point that separates groups is no format of its own, but 1.281 is told if it is read as 1281.
  const bool takes_point = example_.empty() && decimal == CsvDecimal::kCommaAndPoints;
  return takes_point ? point_example_ : example_;
}

std::vector<CsvDecimal> DecimalRule::ForAll(const std::vector<DecimalSigns>& columns) const {
  const bool has_comma = std::ranges::any_of(columns, &DecimalSigns::has_comma);
  const bool has_point = std::ranges::any_of(columns, &DecimalSigns::has_point);
  std::vector<CsvDecimal> decimals;
  for (const DecimalSigns& signs : columns) {
    const bool is_decided = given || has_comma == has_point || !signs.is_open();
    decimals.push_back(is_decided ? For(signs) : has_comma ? signs.AsComma() : CsvDecimal::kPoint);
  }
  return decimals;
}

std::string HowRead(const DecimalSigns& signs, CsvDecimal decimal, const std::string& aside) {
  const std::string& example = signs.Example(decimal);
  double number = 0;
  if (!ParseNumber(example, decimal, number)) return "";
  std::string text = fmt::format("\"{:.40}\" is read as {}{}", example, number, aside);
  if (signs.percents() > 0 && signs.percents() < signs.numbers()) {
    text +=
        fmt::format("; {} of {} numbers have a percent sign", signs.percents(), signs.numbers());
  }
  if (signs.currencies().size() > 1) {
    text += fmt::format("; amounts in {} are taken alike, without conversion",
                        fmt::join(signs.currencies(), ", "));
  }
  return text;
}

std::string HowElse(const DecimalSigns& signs, CsvDecimal decimal) {
  if (!signs.is_open()) return "";
  if (!signs.may_be_either()) {
    return decimal == CsvDecimal::kCommaAndPoints
               ? " (data.csv.decimal: COMMA if the point is a decimal sign)"
               : "";
  }
  const bool is_point = decimal == CsvDecimal::kPoint;
  return fmt::format(" (data.csv.decimal: {} if the comma {})", is_point ? "COMMA" : "POINT",
                     is_point ? "is a decimal sign" : "separates groups of digits");
}

bool IsMissing(std::string_view text) {
  constexpr std::array<std::string_view, 11> kFurther{
      "n/a", "none", "nat", "<na>", "#n/a", "#na", "#n/a n/a", "-nan", "1.#ind", "1.#qnan", "\\n"};
  if (IsMissingText(text)) return true;
  text = Trimmed(text);
  if (text.size() > kLongest) return false;
  std::string word = ShortWord(text);
  if (word.starts_with("-1")) word.erase(0, 1);
  return std::ranges::find(kFurther, word) != kFurther.end();
}

bool IsMissingText(std::string_view text) {
  text = Trimmed(text);
  if (text.empty()) return true;
  if (text.size() > 4) return false;
  const std::string word = ShortWord(text);
  return word == "na" || word == "nan" || word == "null";
}

}  // namespace lockstep
