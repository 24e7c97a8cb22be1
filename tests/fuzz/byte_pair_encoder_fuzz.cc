// Fuzzes the byte-pair encoder. Checks that the encoder refuses bytes that are not UTF-8, and that otherwise the texts
// of the tokens, joined, equal the input.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_pair_encoder.h"
#include "data/tokenizers/testing/tiny_vocabulary.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static const TinyVocabulary tiny({{"a", "a"},
                                    {"aa", "a"},
                                    {" ", "a"},
                                    {"a", "b"},
                                    {"aa", "aa"},
                                    {" a", "b"},
                                    {"\xc3", "\xa9"},
                                    {" ", "\xc3\xa9"}});
  static BytePairEncoder encoder(
      std::make_shared<BytePairVocabulary>(tiny.json, "vocab.json", tiny.merges, "merges.txt"));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<uint16_t> tokens;
  try {
    encoder.Encode(text, tokens);
  } catch (const BadText& bad) {
    if (bad.position >= size) std::abort();
    return 0;
  }
  std::string decoded;
  for (const uint16_t token : tokens) decoded += tiny.texts[token];
  if (decoded != text) std::abort();
  // Checks that the text has the same tokens if it is encoded in two parts, cut at the first position at which CutsAt()
  // allows a cut.
  for (size_t cut = 1; cut < size; ++cut) {
    if (!encoder.CutsAt(text, cut)) continue;
    std::vector<uint16_t> parts;
    encoder.Encode(text.substr(0, cut), parts);
    encoder.Encode(text.substr(cut), parts);
    if (parts != tokens) std::abort();
    break;
  }
  return 0;
}
