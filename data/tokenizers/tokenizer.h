// Tokenizer: the interface that turns a text into 16-bit tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

// Each thread must have its own Tokenizer.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the size of the vocabulary. All tokens are in [0, vocabulary()).
  virtual int64_t vocabulary() const = 0;

  // Returns the token that is put before each document.
  virtual uint16_t end_of_text() const = 0;

  // Appends the tokens of `text`. Throws BadText.
  virtual void Encode(std::string_view text, std::vector<uint16_t>& tokens) = 0;

  // Returns true only if the tokens of `text` are the tokens of its first `position` bytes followed by the tokens of
  // the rest. `position` must be in [1, text.size() - 1].
  virtual bool CutsAt(std::string_view text, size_t position) const = 0;
};

// The exception that Encode() throws if the text is not valid. `position` is the index of the first wrong byte.
struct BadText {
  size_t position;
  const char* reason;
};

// Returns a tokenizer with one token for each byte, and token 256 for the end of a text.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace lockstep
