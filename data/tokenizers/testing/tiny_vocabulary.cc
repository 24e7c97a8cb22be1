#include "data/tokenizers/testing/tiny_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

// Returns the character, in UTF-8, that stands for each byte, as bytes_to_unicode() in GPT-2's encoder.py does.
std::vector<std::string> Characters() {
  std::vector<int> points(256);
  int others = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_itself =
        (33 <= byte && byte <= 126) || (161 <= byte && byte <= 172) || (174 <= byte && byte <= 255);
    points[byte] = is_itself ? byte : others++;
  }
  std::vector<std::string> characters;
  for (const int point : points) {
    characters.push_back(point < 128 ? std::string(1, static_cast<char>(point))
                                     : std::string{static_cast<char>(0xc0 + point / 64),
                                                   static_cast<char>(0x80 + point % 64)});
  }
  return characters;
}

}  // namespace

TinyVocabulary::TinyVocabulary(
    const std::vector<std::pair<std::string, std::string>>& merged_texts) {
  const std::vector<std::string> characters = Characters();
  const auto written = [&](const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += characters[static_cast<unsigned char>(byte)];
    return text;
  };
  nlohmann::json object;
  for (int byte = 0; byte < 256; ++byte) {
    texts.push_back(std::string(1, static_cast<char>(byte)));
    object[characters[byte]] = byte;
  }
  texts.push_back("<|endoftext|>");
  object["<|endoftext|>"] = 256;
  merges = "#version: 0.2\n";
  for (const auto& [left, right] : merged_texts) {
    merges += written(left) + " " + written(right) + "\n";
    if (std::find(texts.begin(), texts.end(), left + right) != texts.end()) continue;
    object[written(left + right)] = texts.size();
    texts.push_back(left + right);
  }
  json = object.dump();
}

}  // namespace lockstep
