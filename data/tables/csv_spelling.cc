#include "data/tables/csv_spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "data/tables/csv_cells.h"
#include "data/tables/csv_number.h"

namespace lockstep {
namespace {

constexpr std::string_view kDigits = "0123456789";

// A number: sign * 0.digits * 10^exponent. `digits` has no zeros at its ends and is empty for 0.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int64_t exponent = 0;
};

// Moves the digits at the beginning of `text` to `digits`, and returns their number.
int64_t MoveDigits(std::string_view& text, std::string& digits) {
  const size_t count = std::min(text.find_first_not_of(kDigits), text.size());
  digits += text.substr(0, count);
  text.remove_prefix(count);
  return static_cast<int64_t>(count);
}

// Removes `c` from the beginning of `text`. Returns false if `text` does not begin with it.
bool Take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// Returns the number that `text` holds in C's spelling; nullopt if its exponent is too great.
std::optional<Decimal> DecimalIn(std::string_view text) {
  Decimal number{.is_negative = Take(text, '-')};
  number.exponent = MoveDigits(text, number.digits);
  if (Take(text, '.')) MoveDigits(text, number.digits);
  if (Take(text, 'e')) {
    int64_t shift = 0;
    Take(text, '+');
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), shift);
    constexpr int64_t kMost = 1'000'000;
    if (error != std::errc() || std::abs(shift) > kMost) return std::nullopt;
    number.exponent += shift;
  }
  const size_t zeros = std::min(number.digits.find_first_not_of('0'), number.digits.size());
  number.digits.erase(0, zeros);
  number.digits.erase(number.digits.find_last_not_of('0') + 1);
  number.exponent -= static_cast<int64_t>(zeros);
  if (number.digits.empty()) return Decimal{};
  return number;
}

// Returns the key of a number (PlainNumber::text); nullopt if its exponent is too great.
std::optional<std::string> NumberKey(std::string_view text) {
  std::optional<Decimal> number = DecimalIn(text);
  if (!number) return std::nullopt;
  constexpr size_t kExactDigits = 15;
  const auto digits = static_cast<int64_t>(number->digits.size());
  double value = 0;
  if (number->digits.size() > kExactDigits && number->exponent < digits &&
      ParseWhole(text, value)) {
    number = DecimalIn(fmt::format("{}", value));  // the shortest text that is this double
  }
  return fmt::format("{}{}e{}", number->is_negative ? "-" : "", number->digits, number->exponent);
}

bool IsBetter(std::string_view one, std::string_view other) {
  return one.size() != other.size() ? one.size() < other.size() : one < other;
}

// Maps the key of each value to the spelling that stays.
std::unordered_map<std::string, std::string> SpellingsThatStay(const TextCounts& counts,
                                                               const ColumnKeys& key_of) {
  std::unordered_map<std::string, std::string> spellings;
  for (const auto& [text, count] : counts) {
    const auto [at, is_new] = spellings.try_emplace(key_of(text), text);
    if (!is_new && IsBetter(text, at->second)) at->second = text;
  }
  return spellings;
}

}  // namespace

ColumnKeys::ColumnKeys(const TextCounts& counts, const DecimalRule& rule) {
  for (const auto& [text, count] : counts) Add(text);
  ChooseKind(rule);
}

ColumnKeys::ColumnKeys(const std::vector<std::string>& texts, const DecimalRule& rule) {
  for (const std::string& text : texts) Add(text);
  ChooseKind(rule);
}

void ColumnKeys::Add(std::string_view text) {
  if (IsMissing(text)) return;
  ++texts_;
  signs_.Add(TrimmedCell(text));
  if (TruthOf(text)) ++truths_;
}

void ColumnKeys::ChooseKind(const DecimalRule& rule) {
  decimal_ = rule.For(signs_);
  // Amounts of several currencies are no numbers that can be compared.
  if (texts_ == 0 || signs_.currencies().size() > 1) return;
  if (truths_ == texts_) {
    kind_ = Kind::kTruths;
  } else if (signs_.numbers() + truths_ == texts_) {
    kind_ = Kind::kNumbers;
  }
}

std::string ColumnKeys::operator()(std::string_view text, std::optional<CsvDecimal> decimal) const {
  text = TrimmedCell(text);
  if (kind_ == Kind::kOther) return std::string(WithoutZeroFraction(text));
  if (const std::optional<bool> truth = TruthOf(text)) text = *truth ? "1" : "0";
  const std::optional<PlainNumber> number = FindNumber(text, decimal.value_or(decimal_));
  return (number ? NumberKey(number->text) : std::nullopt).value_or(std::string(text));
}

std::string_view WithoutZeroFraction(std::string_view text) {
  const size_t point = text.find('.');
  if (point == text.npos || point == 0 || point + 1 == text.size()) return text;
  const std::string_view integer = text.substr(0, point);
  const std::string_view digits = integer.substr(integer.starts_with('-') ? 1 : 0);
  const bool is_integer = !digits.empty() && digits.find_first_not_of(kDigits) == digits.npos &&
                          text.find_first_not_of('0', point + 1) == text.npos;
  return is_integer ? integer : text;
}

void MergeSpellings(TextCounts& counts, const DecimalRule& rule) {
  const ColumnKeys key_of(counts, rule);
  const auto spellings = SpellingsThatStay(counts, key_of);
  if (spellings.size() == counts.size()) return;
  TextCounts merged;
  for (const auto& [text, count] : counts) merged[spellings.at(key_of(text))] += count;
  counts = std::move(merged);
}

void UnifySpellings(std::vector<std::string>& texts, const DecimalRule& rule) {
  TextCounts counts;
  for (const std::string& text : texts) ++counts[text];
  const ColumnKeys key_of(counts, rule);
  const auto spellings = SpellingsThatStay(counts, key_of);
  if (spellings.size() == counts.size()) return;
  for (std::string& text : texts) text = spellings.at(key_of(text));
}

TextIndex::TextIndex(const std::vector<std::string>& texts, const DecimalRule& rule)
    : key_of_(texts, rule) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    texts_.try_emplace(texts[i], index);
    keys_.try_emplace(key_of_(texts[i]), index);
  }
}

int64_t TextIndex::FindSame(std::string_view text) const {
  const auto found = texts_.find(text);
  return found == texts_.end() ? -1 : found->second;
}

int64_t TextIndex::Find(std::string_view text, std::optional<CsvDecimal> decimal) const {
  if (const int64_t same = FindSame(text); same >= 0) return same;
  const auto found = keys_.find(key_of_(text, decimal));
  return found == keys_.end() ? -1 : found->second;
}

}  // namespace lockstep
