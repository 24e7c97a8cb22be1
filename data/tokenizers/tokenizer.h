// Tokenizer: the interface that turns a text into 16-bit tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

// Each thread must have its own object.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The number of different tokens. All tokens are in [0, vocabulary()).
  virtual int64_t vocabulary() const = 0;

  // The token that stands before each document.
  virtual uint16_t end_of_text() const = 0;

  // Appends the tokens of `text`. Throws BadText.
  virtual void Encode(std::string_view text, std::vector<uint16_t>& tokens) = 0;

  // Returns whether the tokens of `text` are always the tokens of its first `position` bytes followed by the tokens of
  // the rest. 0 < position < text.size().
  virtual bool CutsAt(std::string_view text, size_t position) const = 0;
};

// Encode() throws a BadText if the text is not valid. `position` is the position of the first wrong byte.
struct BadText {
  size_t position;
  const char* reason;
};

// Returns a tokenizer with one token for each byte, and token 256 for the end of a text.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace lockstep
