#include "data/tokenizers/gpt2_words.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

Words WordsOf(std::string_view text) {
  Gpt2Words words;
  Words found;
  words.ForEach(text, [&](std::string_view word) { found.emplace_back(word); });
  return found;
}

TEST(Gpt2Words, AreThoseOfEncoderPy) {
  EXPECT_EQ(WordsOf(""), Words());
  EXPECT_EQ(WordsOf("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(WordsOf("we'll say 'tis, it's they'RE"),
            (Words{"we", "'ll", " say", " '", "tis", ",", " it", "'s", " they", "'", "RE"}));
  EXPECT_EQ(WordsOf("a  b   c\n\n d\t"), (Words{"a", " ", " b", "  ", " c", "\n\n", " d", "\t"}));
  EXPECT_EQ(WordsOf("x1234.5%  "), (Words{"x", "1234", ".", "5", "%", "  "}));
  EXPECT_EQ(WordsOf("Größe 中文 \xf0\x9f\x98\x80!"),
            (Words{"Größe", " 中文", " \xf0\x9f\x98\x80!"}));
  // U+00A0 and U+3000 are white space, but U+180E is not. U+00B2 is a number (\p{N}).
  EXPECT_EQ(WordsOf("a\u00a0b\u3000\u3000c\u180ed\u00b2"),
            (Words{"a", "\u00a0", "b", "\u3000", "\u3000", "c", "\u180e", "d", "\u00b2"}));
}

TEST(Gpt2Words, FindsBadUtf8) {
  for (const auto& [text, position] :
       std::vector<std::pair<std::string, size_t>>{{"abc \x80", 4}, {"\xc0\x80", 0}}) {
    try {
      WordsOf(text);
      ADD_FAILURE() << text;
    } catch (const BadText& bad) {
      EXPECT_EQ(bad.position, position);
    }
  }
}

TEST(Gpt2Words, OfATextAreThoseOfItsParts) {
  const Words kBits{" ",      "  ",     "\n",     "\t",     "a",  "b",  "'",  "s",
                    "ll",     "1",      ".",      ",",      "é",  "中", "\r", "'ve",
                    "\u00a0", "\u3000", "\u2003", "\u0085", "\f", "²",  "!",  "\u200b"};
  std::mt19937_64 random(1);
  int64_t cuts = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text;
    for (uint64_t bits = random() % 25; bits > 0; --bits) text += kBits[random() % kBits.size()];
    const Words whole = WordsOf(text);
    for (size_t position = 1; position < text.size(); ++position) {
      if (!Gpt2Words::CutsAt(text, position)) continue;
      ++cuts;
      Words parts = WordsOf(std::string_view(text).substr(0, position));
      for (std::string& word : WordsOf(std::string_view(text).substr(position))) {
        parts.push_back(std::move(word));
      }
      ASSERT_EQ(parts, whole) << text << " at " << position;
    }
  }
  EXPECT_GT(cuts, 3000);
}

}  // namespace
}  // namespace lockstep
