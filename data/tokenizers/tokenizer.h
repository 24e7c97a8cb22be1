// Tokenizer: the interface that turns a text into 16-bit tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

// Not for several threads at once: each has its own.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Tokens are in [0, vocabulary()).
  virtual int64_t vocabulary() const = 0;

  // Stands before each document.
  virtual uint16_t end_of_text() const = 0;

  // Appends the tokens of `text`. Throws BadText.
  virtual void Encode(std::string_view text, std::vector<uint16_t>& tokens) = 0;

  // Whether the tokens of `text` are those of its first `position` bytes and then those of the rest,
  // whatever the text is elsewhere. 0 < position < text.size().
  virtual bool CutsAt(std::string_view text, size_t position) const = 0;
};

// What Encode() throws: the text cannot be one, from this byte on.
struct BadText {
  size_t position;
  const char* reason;
};

// A token for each byte, and 256 for the end of a text.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

}  // namespace lockstep
