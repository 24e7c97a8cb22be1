// The words that GPT-2's tokenizer cuts a text into before it looks at their bytes.
//
// Promise: the words of a text, one after the other, are the text. They are the matches of
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (encoder.py of github.com/openai/gpt-2), where \s is Unicode's White_Space.
//
// A text may be cut before white space that comes after another character. No match reaches over such a place: white
// space other than the first space begins only a word of white space, and no match before it looks beyond it, because
// the one look ahead, (?!\S), comes after white space only. The words of a text are those of the two parts.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokenizers/gpt2_words_test.cc)
//   a text that is not UTF-8 -> BadText with the first byte that is wrong -> Gpt2Words.FindsBadUtf8
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace lockstep {

// Not for several threads at once.
class Gpt2Words {
 public:
  Gpt2Words();
  ~Gpt2Words();
  Gpt2Words(const Gpt2Words&) = delete;
  Gpt2Words& operator=(const Gpt2Words&) = delete;

  // Calls `use` for each word in turn. Throws BadText (data/tokenizers/tokenizer.h) before the first.
  void ForEach(std::string_view text, const std::function<void(std::string_view word)>& use);

  // Whether the text may be cut at `position`, 0 < position < text.size().
  static bool CutsAt(std::string_view text, size_t position);

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
};

}  // namespace lockstep
