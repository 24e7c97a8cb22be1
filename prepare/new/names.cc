#include "prepare/new/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/small_letters.h"

namespace lockstep {
namespace {

// Returns the words of a name in small letters: {"customer", "id"} of CustomerID, customer_id and "customer id".
std::vector<std::string> WordsOf(const std::string& name) {
  const auto is = [](int (*kind)(int), char c) { return kind(static_cast<unsigned char>(c)) != 0; };
  std::vector<std::string> words;
  bool begins = true;
  for (size_t i = 0; i < name.size(); ++i) {
    // Bytes above 127 are parts of letters.
    if (!is(std::isalnum, name[i]) && static_cast<unsigned char>(name[i]) < 128) {
      begins = true;
      continue;
    }
    if (i > 0 && is(std::isupper, name[i]) && is(std::islower, name[i - 1])) begins = true;
    if (begins) words.emplace_back();
    begins = false;
    words.back() += name[i];
  }
  for (std::string& word : words) word = InSmallLetters(word);
  return words;
}

}  // namespace

bool IsNameOfIds(const std::string& name) {
  const std::string small = InSmallLetters(name);
  return small.empty() || small == "id" || small == "uuid" || small == "guid" || small == "index" ||
         small == "row" || small == "key" || small == "rownumber" || small == "row_number" ||
         small.starts_with("unnamed: ") || small.ends_with("_id") || small.ends_with(" id") ||
         small.ends_with("-id") || small.ends_with(".id") || name.ends_with("Id") ||
         (name.ends_with("ID") && name.size() > 2);
}

bool IsNameOfPersons(const std::string& name) {
  constexpr std::array<std::string_view, 18> kPersons{
      "customer", "client",    "patient",  "user",        "subject",    "person",
      "member",   "household", "session",  "participant", "respondent", "subscriber",
      "employee", "student",   "borrower", "cardholder",  "visitor",    "account"};
  constexpr std::array<std::string_view, 8> kNumbers{"id",  "number", "nr",   "no",
                                                     "key", "code",   "uuid", "guid"};
  std::vector<std::string> words = WordsOf(name);
  if (words.size() > 1 && std::ranges::find(kNumbers, words.back()) != kNumbers.end()) {
    words = {words[words.size() - 2]};
  }
  return words.size() == 1 && std::ranges::find(kPersons, words[0]) != kPersons.end();
}

bool EndsWithId(const std::string& name) {
  const std::vector<std::string> words = WordsOf(name);
  return !words.empty() &&
         (words.back() == "id" || words.back() == "uuid" || words.back() == "guid");
}

bool IsNameOfCodes(const std::string& name) {
  constexpr std::array<std::string_view, 10> kCodes{"zip",    "zipcode", "postcode", "postalcode",
                                                    "postal", "plz",     "pincode",  "cep",
                                                    "sic",    "naics"};
  const std::vector<std::string> words = WordsOf(name);
  return std::ranges::any_of(words, [&](const std::string& word) {
    return word == "code" || word == "codes" || std::ranges::find(kCodes, word) != kCodes.end();
  });
}

std::string NameOfFile(const std::string& path) {
  namespace fs = std::filesystem;
  std::string name = fs::absolute(path).lexically_normal().string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return fs::path(name).filename().string();
}

std::string Count(int64_t number, const std::string& noun) {
  if (number == 1) return "1 " + noun;
  const bool hisses = noun.ends_with("s") || noun.ends_with("ch");
  return fmt::format("{} {}{}", number, noun, hisses ? "es" : "s");
}

}  // namespace lockstep
