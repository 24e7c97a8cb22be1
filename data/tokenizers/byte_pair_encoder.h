// Byte pair encoding with GPT-2's vocabularies (Sennrich et al. 2016; Radford et al. 2019).
//
// Promise: a text's tokens are those that GPT-2's encoder.py gives with the same two files of a vocabulary (described
// below). At first, each byte of a word (data/tokenizers/gpt2_words.h) is a token. The encoder then looks for the pair
// of neighbouring tokens that comes first in the list of merges, and replaces the pair by one token. If this pair
// occurs several times in the word, the encoder replaces its leftmost occurrence. The encoder repeats this step until
// no pair of neighbouring tokens is in the list.
//
// Files: one folder has encoder.json or vocab.json, a JSON object that maps the text of each token to its number, and
// vocab.bpe or merges.txt, which begins with a line #version and then has one merge in each line, in the order of the
// merges' ranks. Both files write each byte of a token as a character. A byte that is a printable character of Latin-1
// is written as that character, and the other bytes are written as U+0100, U+0101, ... in order. <|endoftext|> is the
// token between texts. If a text contains the characters <|endoftext|>, they become ordinary tokens.
//
// Cost: O(n log n) for a word of n bytes. A hash table with 65,536 entries caches the tokens of words of up to 15 bytes
// and 7 tokens, so most words cost one look-up.
//
// what can fail -> what the caller sees -> the test that shows it (data/tokenizers/byte_pair_encoder_test.cc)
//   no such files, no JSON, no numbers, a number twice, a number above 65,535, a byte or <|endoftext|> that is missing,
//     a merge of unknown tokens -> Error (kData) with file and, for a merge, line -> Vocabulary.Refuses*
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

  // Parses the contents of the two files. The names of the files are for error messages. Throws Error (kData).
  BytePairVocabulary(std::string_view tokens_json, const std::string& tokens_name,
                     std::string_view merges, const std::string& merges_name);

  // Reads the files in `folder`. Throws Error (kData).
  static BytePairVocabulary Read(const std::string& folder);

  int64_t size() const { return size_; }

  // Returns a hash of the contents of the files.
  uint64_t hash() const { return hash_; }

  uint16_t end_of_text() const { return end_of_text_; }
  uint16_t TokenOf(unsigned char byte) const { return byte_tokens_[byte]; }

  // Returns the merge of a pair of tokens, or nullptr if the list of merges does not have the pair.
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
  // An entry of the cache: a word and its tokens.
  struct Known {
    // The bytes of the word, then zeros; the last of the 16 bytes is the number of the word's bytes.
    std::array<uint64_t, 2> word{};
    std::array<uint16_t, 7> tokens{};
    uint16_t count = 0;
  };

  // One token of the word whose tokens are being merged. `before` and `after` are the indices in symbols_ of the tokens
  // before and after it.
  struct Symbol {
    int32_t before;
    int32_t after;  // -1: none
    int32_t token;  // -1: the token was merged into the token before it
  };

  struct Candidate {
    uint32_t rank;
    int32_t place;
    uint16_t left;
    uint16_t right;
    uint16_t merged;

    bool operator<(const Candidate& other) const {  // the top of a heap is its greatest element
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
  std::vector<Candidate> candidates_;  // a heap of the pairs that may be merged
};

}  // namespace lockstep
