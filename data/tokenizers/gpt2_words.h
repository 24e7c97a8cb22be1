// Cuts a text into words, as GPT-2's tokenizer does before it encodes each word.
//
// Promise: the words of a text, joined in their order, are the text. The words are the matches of
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (encoder.py of github.com/openai/gpt-2), where \s is a character with Unicode's property White_Space.
//
// A text may be cut before white space that follows a character that is not white space. The words of the text are then
// the words of the two parts, because no match extends over such a place. White space can begin a match, but it cannot
// continue a match that began with other characters. A match that ends at the cut would be the same without the text
// after the cut, because the only look-ahead, (?!\S), comes after white space in the pattern.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokenizers/gpt2_words_test.cc)
//   a text that is not UTF-8 -> BadText with the first byte that is wrong -> Gpt2Words.FindsBadUtf8
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace lockstep {

// Each thread must have its own Gpt2Words.
class Gpt2Words {
 public:
  Gpt2Words();
  ~Gpt2Words();
  Gpt2Words(const Gpt2Words&) = delete;
  Gpt2Words& operator=(const Gpt2Words&) = delete;

  // Calls `use` for each word in order. If the text is not valid UTF-8, throws BadText (data/tokenizers/tokenizer.h)
  // before the first call of `use`.
  void ForEach(std::string_view text, const std::function<void(std::string_view word)>& use);

  // Returns whether the text may be cut before the byte at `position`, where 0 < position < text.size(). Returns false
  // before white space that is not ASCII.
  static bool CutsAt(std::string_view text, size_t position);

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace lockstep
