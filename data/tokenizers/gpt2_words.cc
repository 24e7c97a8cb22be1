#include "data/tokenizers/gpt2_words.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "data/tokenizers/tokenizer.h"

namespace lockstep {
namespace {

// The characters with Unicode's property White_Space, for a character class. (PCRE2's \s also includes U+180E.)
#define LOCKSTEP_SPACE \
  R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"

// The pattern that gpt2_words.h shows. A part with ++ (a possessive quantifier) never has to give characters back, so
// ++ avoids useless backtracking.
constexpr char kPattern[] =
    R"('(?:[stmd]|re|ve|ll)| ?\p{L}++| ?\p{N}++| ?[^\p{L}\p{N})" LOCKSTEP_SPACE
    R"(]++|[)" LOCKSTEP_SPACE R"(]+(?![^)" LOCKSTEP_SPACE R"(])|[)" LOCKSTEP_SPACE R"(]++)";
#undef LOCKSTEP_SPACE

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool IsSpace(uint32_t point) {
  constexpr std::array<uint32_t, 8> kOthers{0x85,   0xa0,   0x1680, 0x2028,
                                            0x2029, 0x202f, 0x205f, 0x3000};
  return (point < 0x80 && IsAsciiSpace(static_cast<char>(point))) ||
         (point >= 0x2000 && point <= 0x200a) ||
         std::find(kOthers.begin(), kOthers.end(), point) != kOthers.end();
}

// Returns the code point of the UTF-8 character that ends before `end`.
uint32_t CharacterBefore(std::string_view text, size_t end) {
  constexpr int kLongest = 4;
  uint32_t point = 0;
  for (int bytes = 1; bytes <= kLongest && end > 0; ++bytes) {
    const auto byte = static_cast<unsigned char>(text[--end]);
    const bool continues = (byte & 0xc0) == 0x80;
    const int shift = 6 * (bytes - 1);
    if (continues) {
      point |= (byte & 0x3fU) << shift;
    } else {
      return byte < 0x80 ? byte : point | (byte & (0x7fU >> bytes)) << shift;
    }
  }
  return point;
}

}  // namespace

struct Gpt2Words::Pattern {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;

  Pattern() {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                         &error, &offset, nullptr);
    if (code == nullptr) throw BugError("PCRE2 error {} at {} of {}", error, offset, kPattern);
    // The result is ignored: if PCRE2 cannot make machine code for this processor, it interprets the pattern.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    match = pcre2_match_data_create(/*ovecsize=*/1, nullptr);
    if (match == nullptr) throw std::bad_alloc();
  }
  ~Pattern() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
};

Gpt2Words::Gpt2Words() : pattern_(std::make_unique<Pattern>()) {}
Gpt2Words::~Gpt2Words() = default;

void Gpt2Words::ForEach(std::string_view text,
                        const std::function<void(std::string_view word)>& use) {
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(pattern_->match);
  uint32_t options = 0;  // the first call checks that the whole text is UTF-8
  for (size_t begin = 0; begin < text.size();) {
    const int result = pcre2_match(pattern_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), begin, options, pattern_->match, nullptr);
    if (result <= PCRE2_ERROR_UTF8_ERR1 && result >= PCRE2_ERROR_UTF8_ERR21) {
      throw BadText{.position = pcre2_get_startchar(pattern_->match), .reason = "not UTF-8"};
    }
    if (result < 0 || range[0] != begin || range[1] <= begin) {
      throw BugError("PCRE2 gives {} at byte {} of a text", result, begin);
    }
    use(text.substr(begin, range[1] - begin));
    begin = range[1];
    options = PCRE2_NO_UTF_CHECK;
  }
}

bool Gpt2Words::CutsAt(std::string_view text, size_t position) {
  return IsAsciiSpace(text[position]) && !IsSpace(CharacterBefore(text, position));
}

}  // namespace lockstep
