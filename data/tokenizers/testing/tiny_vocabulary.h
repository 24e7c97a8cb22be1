// For tests: makes a vocabulary of all bytes, <|endoftext|> and a few merges, in the format of GPT-2's two files.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct TinyVocabulary {
  // Each merge joins two texts that are single bytes or results of earlier merges. The merge's index is its rank. If
  // two merges give the same text, both have the same token.
  explicit TinyVocabulary(const std::vector<std::pair<std::string, std::string>>& merges);

  std::string json;
  std::string merges;
  std::vector<std::string> texts;  // the bytes of each token; token 256 is <|endoftext|>
};

}  // namespace lockstep
