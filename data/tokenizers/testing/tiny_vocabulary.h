// For tests: writes a vocabulary of all bytes, <|endoftext|> and a few merges, in the format of GPT-2's two files.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct TinyVocabulary {
  // Each merge is of two texts that are bytes or results of merges before it; its number is its rank. A
  // text that two merges give has one token.
  explicit TinyVocabulary(const std::vector<std::pair<std::string, std::string>>& merges);

  std::string json;
  std::string merges;
  std::vector<std::string> texts;  // of each token, in bytes; that of <|endoftext|> is 256
};

}  // namespace lockstep
