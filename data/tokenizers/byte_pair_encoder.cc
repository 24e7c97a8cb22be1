#include "data/tokenizers/byte_pair_encoder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/mix.h"

namespace lockstep {
namespace {

constexpr char kEndOfText[] = "<|endoftext|>";
constexpr int64_t kMaxTokens = int64_t{1} << 16;
constexpr size_t kKnownWords = size_t{1} << 16;
constexpr size_t kKnownBytes = 15;

// Returns the character, in UTF-8, that stands for a byte in the files of a vocabulary.
std::string CharacterOf(int byte) {
  const auto is_printable = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  int point = byte;
  if (!is_printable(byte)) {
    point = 256;
    for (int b = 0; b < byte; ++b) point += is_printable(b) ? 0 : 1;
  }
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 0x3f))};
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file && !file.eof()) throw DataError("{}: cannot be read", path);
  return text;
}

std::string FileOf(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    const std::filesystem::file_type type = std::filesystem::status(path, error).type();
    if (type == std::filesystem::file_type::none) throw DataError("{}: {}", path, error.message());
    if (type == std::filesystem::file_type::regular) return path;
  }
  throw DataError("{}: no {} in it: a vocabulary is GPT-2's two files", folder,
                  fmt::format("{} or {}", names[0], names[1]));
}

std::unordered_map<std::string, uint16_t> ParseTokens(std::string_view json,
                                                      const std::string& name) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(json);
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: no JSON: {}", name, error.what());
  }
  if (!object.is_object()) throw DataError("{}: no object of tokens and numbers", name);
  std::unordered_map<std::string, uint16_t> token_of;
  std::vector<bool> is_taken(kMaxTokens);
  for (const auto& [text, number] : object.items()) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() >= kMaxTokens) {
      throw DataError("{}: token {} is {}: tokens are whole numbers below {}", name, text,
                      number.dump(), kMaxTokens);
    }
    const auto token = number.get<uint16_t>();
    if (is_taken[token])
      throw DataError("{}: two tokens are {}, one of them {}", name, token, text);
    is_taken[token] = true;
    token_of.emplace(text, token);
  }
  return token_of;
}

}  // namespace

BytePairVocabulary::BytePairVocabulary(std::string_view tokens_json, const std::string& tokens_name,
                                       std::string_view merges, const std::string& merges_name)
    : hash_(Mix(std::hash<std::string_view>()(tokens_json)) ^
            std::hash<std::string_view>()(merges)) {
  const std::unordered_map<std::string, uint16_t> token_of = ParseTokens(tokens_json, tokens_name);
  const auto find = [&](const std::string& text, const std::string& who) {
    const auto found = token_of.find(text);
    if (found == token_of.end()) throw DataError("{}: no token {} in {}", who, text, tokens_name);
    return found->second;
  };
  for (const auto& [text, token] : token_of) size_ = std::max<int64_t>(size_, token + 1);
  end_of_text_ = find(kEndOfText, tokens_name);
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = find(CharacterOf(byte), fmt::format("{}: byte {}", tokens_name, byte));
  }
  uint32_t number = 0;
  for (size_t begin = 0; begin < merges.size(); ++number) {
    const size_t end = std::min(merges.find('\n', begin), merges.size());
    std::string_view line = merges.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 0 && line.starts_with("#version"))) continue;
    const std::string where = fmt::format("{}:{}", merges_name, number + 1);
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      throw DataError("{}: no pair of tokens with a space between them: \"{}\"", where, line);
    }
    const std::string left(line.substr(0, space));
    const std::string right(line.substr(space + 1));
    merges_.emplace(KeyOf(find(left, where), find(right, where)),
                    Merge{.rank = number, .token = find(left + right, where)});
  }
}

BytePairVocabulary BytePairVocabulary::Read(const std::string& folder) {
  const std::string tokens = FileOf(folder, {"encoder.json", "vocab.json"});
  const std::string merges = FileOf(folder, {"vocab.bpe", "merges.txt"});
  return {ReadText(tokens), tokens, ReadText(merges), merges};
}

BytePairEncoder::BytePairEncoder(std::shared_ptr<const BytePairVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)), known_(kKnownWords) {}

void BytePairEncoder::Encode(std::string_view text, std::vector<uint16_t>& tokens) {
  words_.ForEach(text, [&](std::string_view word) { EncodeWord(word, tokens); });
}

void BytePairEncoder::EncodeWord(std::string_view word, std::vector<uint16_t>& tokens) {
  if (word.size() > kKnownBytes) {
    MergeWord(word, tokens);
    return;
  }
  std::array<uint64_t, 2> key{};
  std::memcpy(key.data(), word.data(), word.size());
  key[1] |= uint64_t{word.size()} << 56;  // puts the length into the last byte (little-endian)
  Known& known = known_[Mix(key[0] ^ Mix(key[1])) % kKnownWords];
  if (known.word != key) {
    const size_t begin = tokens.size();
    MergeWord(word, tokens);
    const size_t count = tokens.size() - begin;
    if (count > known.tokens.size()) return;
    known.word = key;
    known.count = static_cast<uint16_t>(count);
    std::copy_n(tokens.begin() + static_cast<int64_t>(begin), count, known.tokens.begin());
    return;
  }
  tokens.insert(tokens.end(), known.tokens.begin(), known.tokens.begin() + known.count);
}

// If the token at `place` and the token after it form a pair that has a merge, adds this pair to the candidates.
void BytePairEncoder::Consider(int32_t place) {
  const Symbol& symbol = symbols_[place];
  if (symbol.after < 0) return;
  const auto left = static_cast<uint16_t>(symbol.token);
  const auto right = static_cast<uint16_t>(symbols_[symbol.after].token);
  const BytePairVocabulary::Merge* merge = vocabulary_->Find(left, right);
  if (merge == nullptr) return;
  candidates_.push_back({merge->rank, place, left, right, merge->token});
  std::push_heap(candidates_.begin(), candidates_.end());
}

void BytePairEncoder::MergeWord(std::string_view word, std::vector<uint16_t>& tokens) {
  symbols_.clear();
  candidates_.clear();
  const auto count = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols_.push_back({.before = i - 1,
                        .after = i + 1 < count ? i + 1 : -1,
                        .token = vocabulary_->TokenOf(static_cast<unsigned char>(word[i]))});
  }
  for (int32_t i = 0; i < count; ++i) Consider(i);
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    const Candidate candidate = candidates_.back();
    candidates_.pop_back();
    Symbol& left = symbols_[candidate.place];
    // After the pair became a candidate, one of its two tokens may have been merged with another token. The pair is
    // then skipped.
    if (left.token != candidate.left || left.after < 0) continue;
    Symbol& right = symbols_[left.after];
    if (right.token != candidate.right) continue;
    right.token = -1;
    left.token = candidate.merged;
    left.after = right.after;
    if (left.after >= 0) symbols_[left.after].before = candidate.place;
    Consider(candidate.place);
    if (left.before >= 0) Consider(left.before);
  }
  for (int32_t i = 0; i >= 0; i = symbols_[i].after) {
    tokens.push_back(static_cast<uint16_t>(symbols_[i].token));
  }
}

}  // namespace lockstep
