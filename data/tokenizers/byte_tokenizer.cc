#include "data/tokenizers/tokenizer.h"

namespace lockstep {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  int64_t vocabulary() const override { return 257; }
  uint16_t end_of_text() const override { return 256; }
  bool CutsAt(std::string_view, size_t) const override { return true; }

  void Encode(std::string_view text, std::vector<uint16_t>& tokens) override {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace lockstep
