// Byte pair encoding with GPT-2's vocabularies (Sennrich et al. 2016; Radford et al. 2019).
//
// Promise: a text's tokens are those that GPT-2's encoder.py gives with the same two files. The tokens of a word
// (data/tokenizers/gpt2_words.h) are at first its bytes. The encoder then looks for the pair of neighbouring tokens
// that comes first in the list of merges, and makes one token of the pair. If this pair occurs several times, the
// encoder takes the leftmost. The encoder repeats this until the list has none of the pairs.
//
// Files: one folder has encoder.json or vocab.json, an object of tokens' texts and numbers, and vocab.bpe or
// merges.txt, which has one pair in each line, in the order of their rank, after a line that begins with #version. Both
// files write a byte as a character. A byte that is a printable character of Latin-1 is written as that character, and
// the other bytes are written as U+0100, U+0101, ... in order. <|endoftext|> is the token between texts. If a text
// contains the characters <|endoftext|>, they become ordinary tokens.
//
// Cost: O(n log n) for a word of n bytes. A hash table of 65,536 places caches the tokens of words of up to 15 bytes
// and 7 tokens, so most words cost one look-up.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokenizers/byte_pair_encoder_test.cc)
//   no such files, no JSON, no numbers, a number twice, more than 65,536, a byte or <|endoftext|> that is
//     missing, a merge of unknown tokens -> Error (kData) with file and line -> Vocabulary.Refuses*
//   a text that is not UTF-8 -> BadText -> BytePairEncoder.RefusesBadUtf8
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/gpt2_words.h"
#include "data/tokenizers/tokenizer.h"

namespace lockstep {

class BytePairVocabulary {
 public:
  struct Merge {
    uint32_t rank;
    uint16_t token;
  };

  // Parses the contents of the two files. The names are for error messages. Throws Error (kData).
  BytePairVocabulary(std::string_view tokens_json, const std::string& tokens_name,
                     std::string_view merges, const std::string& merges_name);

  // Reads the files in `folder`. Throws Error (kData).
  static BytePairVocabulary Read(const std::string& folder);

  int64_t size() const { return size_; }

  // A hash of the contents of the files.
  uint64_t hash() const { return hash_; }

  uint16_t end_of_text() const { return end_of_text_; }
  uint16_t TokenOf(unsigned char byte) const { return byte_tokens_[byte]; }

  // Returns the merge of a pair of tokens, or nullptr if the pair is not merged.
  const Merge* Find(uint16_t left, uint16_t right) const {
    const auto found = merges_.find(KeyOf(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

 private:
  static uint32_t KeyOf(uint16_t left, uint16_t right) { return uint32_t{left} << 16 | right; }

  uint64_t hash_;
  int64_t size_ = 0;  // one more than the greatest token
  uint16_t end_of_text_ = 0;
  std::array<uint16_t, 256> byte_tokens_{};
  std::unordered_map<uint32_t, Merge> merges_;
};

class BytePairEncoder : public Tokenizer {
 public:
  explicit BytePairEncoder(std::shared_ptr<const BytePairVocabulary> vocabulary);

  int64_t vocabulary() const override { return vocabulary_->size(); }
  uint16_t end_of_text() const override { return vocabulary_->end_of_text(); }
  void Encode(std::string_view text, std::vector<uint16_t>& tokens) override;
  bool CutsAt(std::string_view text, size_t position) const override {
    return Gpt2Words::CutsAt(text, position);
  }

 private:
  // A word and its tokens.
  struct Known {
    // The word's bytes, then zeros; the last byte is the number of bytes.
    std::array<uint64_t, 2> word{};
    std::array<uint16_t, 7> tokens{};
    uint16_t count = 0;
  };

  // A token of a word that is being merged. `before` and `after` are the places of its neighbours.
  struct Symbol {
    int32_t before;
    int32_t after;  // -1: none
    int32_t token;  // -1: it was merged into the token before it
  };

  struct Candidate {
    uint32_t rank;
    int32_t place;
    uint16_t left;
    uint16_t right;
    uint16_t merged;

    bool operator<(const Candidate& other) const {  // the heap's top is the greatest element
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };

  void EncodeWord(std::string_view word, std::vector<uint16_t>& tokens);
  void MergeWord(std::string_view word, std::vector<uint16_t>& tokens);
  void Consider(int32_t place);

  std::shared_ptr<const BytePairVocabulary> vocabulary_;
  Gpt2Words words_;
  std::vector<Known> known_;
  std::vector<Symbol> symbols_;        // the tokens of the current word
  std::vector<Candidate> candidates_;  // a heap of the pairs that can be merged
};

}  // namespace lockstep
